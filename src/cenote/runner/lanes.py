"""Threads that run steps side by side, each alone from its first row to its last.

The threads that share a kernel's work meet after every product, and all but one are idle while the
interpreter goes from kernel to kernel. On lanes nobody waits for anybody, a sequence's rows stay in
one core's caches, and what is done between steps overlaps with another lane's products. It knows no
requests and no order of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier

import torch

from cenote.config.engine import EngineConfig
from cenote.errors import InvalidRequest
from cenote.kernels import backend
from cenote.models.base import PoolingModel

# The interpreter's lock is taken for some hundredths of each step: more lanes would wait for it.
MOST_LANES = 16


def lanes_for(config: EngineConfig, model: PoolingModel) -> int:
    """How many steps of the model may run side by side.

    Raises:
        InvalidRequest: more were asked for than this model or machine can run.
    """
    threads = torch.get_num_threads()
    why = _why_not(config, model, threads)
    if why and config.lanes > 1:
        raise InvalidRequest(f"lanes must be 1, not {config.lanes}: {why}.", param="lanes")
    if config.lanes > threads:
        raise InvalidRequest(
            f"lanes must be at most {threads}, the number of threads, not {config.lanes}.",
            param="lanes",
        )
    return 1 if why else config.lanes or threads


def _why_not(config: EngineConfig, model: PoolingModel, threads: int) -> str:
    """What keeps steps from running side by side; empty: nothing."""
    if backend.native() is None:
        return f"the kernels are {backend.describe()}"
    if not model.reentrant:
        return "the model's network runs one batch at a time"
    if model.causal and model.kv_shape is not None:
        return "prompts in parts share keys and values"
    if config.adapters:
        return "adapters are chosen batch by batch"
    if threads > MOST_LANES:
        return f"there are more than {MOST_LANES} threads; replicas share them out better"
    return ""


class Lanes:
    """`count` threads. Torch's own operations run on one thread there, as our kernels do."""

    def __init__(self, count: int) -> None:
        threads = torch.get_num_threads()
        started = Barrier(count + 1)
        self._threads = ThreadPoolExecutor(count, "cenote-lane", initializer=_alone)
        for _ in range(count):
            self._threads.submit(started.wait)
        started.wait()
        # A thread that sets its own number sets what later threads begin with, too.
        torch.set_num_threads(threads)

    def run(self, task: Callable[[], None]) -> Future[None]:
        """Runs `task` on the next free lane."""
        return self._threads.submit(task)


def _alone() -> None:
    torch.set_num_threads(1)
    backend.compute_alone(True)
