"""A loaded model that runs scheduled steps. It knows no queue, no messages and no processes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.errors import ModelLoadError
from cenote.kernels import backend
from cenote.loader.hub import resolve
from cenote.models.base import PoolingModel
from cenote.models.load import compute_dtype, load_model
from cenote.params import PoolingParams, Task
from cenote.poolers.base import Pooler
from cenote.poolers.factory import build_poolers
from cenote.runner import device as machine
from cenote.runner.input_batch import make_batch, read_batch
from cenote.runner.kv_memory import KVMemory, num_blocks
from cenote.runner.lanes import lanes_for
from cenote.runner.pooling_runner import Pooling, PoolingRunner, batch_order
from cenote.runner.query_cache import QueryCache
from cenote.runner.row_readers import RowReaders
from cenote.step import KVSpace, PooledResult, ScheduledRequest, ScheduledStep

logger = logging.getLogger(__name__)

# What must stay as it is when new weights come: the rest of the engine was built on it.
_FIXED = (
    "architecture",
    "vocab_size",
    "hidden_size",
    "num_layers",
    "num_kv_heads",
    "head_dim",
    "num_labels",
    "max_model_len",
)

_PROBE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What a runner serves and on what. `embedding_size` is 0 for models without vectors."""

    supported_tasks: tuple[Task, ...]
    embedding_size: int
    max_model_len: int
    vocab_size: int
    step_tokens: int
    dtype: str
    device: str
    kernels: str
    load_time: float
    lanes: int = 1  # steps that may be run side by side
    kv: KVSpace | None = None  # causal models whose prompts may run in parts


@dataclass(slots=True)
class StepWork:
    """A step on its way through the runner: what is known already, what the model must run, and
    what it gave."""

    results: list[PooledResult]
    to_run: list[ScheduledRequest]
    pooling: Pooling | None = None


class ModelRunner:
    """Loads `config.model` and runs steps on it. One thread at a time, but for `forward`.

    Raises:
        ModelLoadError: the model can't be found, read or served.
        InvalidRequest: the device is not one of this machine.
    """

    def __init__(self, config: EngineConfig) -> None:
        started = time.perf_counter()
        self._config = config
        self._device = machine.choose_device(config.device)
        self._dtype, why = machine.choose_dtype(config.dtype, self._device)
        found = resolve(config.model, config.revision)
        self._model_config = load_model_config(
            found.folder, name=found.name, revision=found.revision, engine=config
        )
        self._model, poolers = self._load(self._model_config)
        self._offered = set(poolers)
        logger.info(
            "dtype %s (%s), device %s, kernels %s, %d threads",
            _name(self._dtype),
            why,
            self._device,
            backend.describe(),
            torch.get_num_threads(),
        )
        self.pooling = PoolingRunner(
            poolers,
            causal=self._model.causal,
            query_cache_bytes=config.query_cache_bytes,
        )
        self._readers = RowReaders(poolers, self.pooling.last_row_tasks)
        self._kv = self._make_kv()
        self.ready_info = RunnerInfo(
            supported_tasks=tuple(sorted(self.pooling.supported_tasks)),
            embedding_size=self._probe(self._model, poolers),
            max_model_len=self._model_config.max_model_len,
            vocab_size=self._model_config.vocab_size,
            step_tokens=machine.step_tokens(config.max_num_batched_tokens, self._device),
            dtype=_name(self._dtype),
            device=str(self._device),
            kernels=backend.instruction_set(),
            load_time=time.perf_counter() - started,
            lanes=lanes_for(config, self._model),
            kv=None if self._kv is None else self._kv.space,
        )
        logger.info("%s loaded in %.1f s", found.name, self.ready_info.load_time)

    @property
    def supported_tasks(self) -> frozenset[Task]:
        return self.pooling.supported_tasks

    @property
    def query_cache(self) -> QueryCache:
        return self.pooling.query_cache

    @property
    def num_entries(self) -> int:
        """Entries of per-request state, which must all go when their requests do."""
        return self.pooling.num_entries

    def add_request(self, request_id: str, params: PoolingParams) -> None:
        """Takes a request in before it is scheduled, so that its end is understood in any state.

        Raises:
            UnsupportedTask, InvalidRequest: see `PoolingRunner.add_request`.
        """
        self.pooling.add_request(request_id, params)

    def execute(self, step: ScheduledStep) -> list[PooledResult]:
        """Runs a step: results of the prompts that it completes."""
        work = self.begin(step)
        self.forward(work)
        return self.end(work)

    @torch.inference_mode()
    def begin(self, step: ScheduledStep) -> StepWork:
        """Takes a step in, and answers what needs no model.

        The finished are told to the pooling runner before the preempted join them for removal: a
        preempted document keeps its reservation of its query.
        """
        self.pooling.on_requests_finished(sorted(step.finished_ids))
        for request_id in sorted(step.finished_ids | step.preempted_ids):
            self.pooling.remove_request(request_id)
        for request in step.requests:
            self.pooling.add_request(request.request_id, request.params)
        results, to_run = self.pooling.answer_from_cache(step.requests)
        looked_up, to_run = self.pooling.answer_by_lookup(to_run)
        results += looked_up
        to_run.sort(key=batch_order)
        return StepWork(results, to_run)

    @torch.inference_mode()
    def forward(self, work: StepWork) -> None:
        """The model and its poolers. Where there are lanes, steps may do this side by side."""
        if not work.to_run:
            return
        kv = None if self._kv is None else self._kv.view(work.to_run)
        read = self._readers.rows(work.to_run, self._device)
        batch = make_batch(work.to_run, self._device, kv, read)
        hidden, use_adapter = self._model(batch), self._model.adapters.for_all
        work.pooling = self.pooling.pool(hidden, read_batch(batch), work.to_run, use_adapter)

    @torch.inference_mode()
    def end(self, work: StepWork) -> list[PooledResult]:
        """Results of the prompts that the step completes."""
        if work.pooling is None:
            return work.results
        return work.results + self.pooling.conclude(work.pooling)

    def reset_encoder_cache(self) -> None:
        """Forgets late-interaction state and the query cache: both depend on the weights."""
        self.pooling.clear()

    def reset_mm_cache(self) -> None:
        """Forgets prepared multimodal inputs, of which a text model has none. They don't depend on
        the weights, so late-interaction state stays."""

    def reload_weights(self, folder: str | None = None) -> None:
        """Loads weights of the same architecture, by default from the model's own folder again.

        The old ones serve on if that fails. Call it only while no score group is half run.

        Raises:
            ModelLoadError: the checkpoint can't be read, or is another architecture's or size's.
        """
        path = self._model_config.path if folder is None else Path(folder)
        config = load_model_config(
            path,
            name=self._model_config.name,
            revision=self._model_config.revision,
            engine=self._config,
        )
        _check_same(self._model_config, config)
        model, poolers = self._load(config)
        if set(poolers) != self._offered:
            raise ModelLoadError(
                f"The new checkpoint's tasks are {sorted(poolers)}, not {sorted(self._offered)}."
            )
        self._probe(model, poolers)
        self._model, self._model_config = model, config
        self.pooling.replace_poolers(poolers)
        self._readers = RowReaders(poolers, self.pooling.last_row_tasks)
        logger.info("weights reloaded from %s", path)

    def _make_kv(self) -> KVMemory | None:
        """The pool of keys and values; None for a model that reads prompts whole."""
        shape, config = self._model.kv_shape, self._config
        if not self._model.causal or shape is None:
            return None
        dtype = compute_dtype(self._dtype, self._device)
        space = KVSpace(
            num_blocks(config.kv_cache_bytes, config.block_size, shape, dtype, self._device),
            config.block_size,
            f"{self._model_config.name}@{self._model_config.revision}",
            self.pooling.last_row_tasks,
            prefix_caching=config.enable_prefix_caching,
            chunked=config.enable_chunked_prefill,
        )
        memory = KVMemory(space, shape, dtype, self._device)
        logger.info(
            "keys and values: %d blocks of %d tokens, %.1f MB",
            space.num_blocks,
            space.block_size,
            memory.nbytes / 1e6,
        )
        return memory

    def _load(self, config: ModelConfig) -> tuple[PoolingModel, Mapping[Task, Pooler]]:
        model = load_model(config, dtype=self._dtype, device=self._device, engine=self._config)
        return model, build_poolers(config, model, self._device)

    @torch.inference_mode()
    def _probe(self, model: PoolingModel, poolers: Mapping[Task, Pooler]) -> int:
        """Runs every task once, so that the first request is not slow; the embedding's size.

        Raises:
            ModelLoadError: the model gives NaN or infinity even for a trivial prompt.
        """
        size = 0
        pooling = PoolingRunner(poolers, causal=model.causal, query_cache_bytes=0)
        length = min(_PROBE_TOKENS, model.config.max_model_len)
        for task in sorted(pooling.supported_tasks):
            request = ScheduledRequest("probe", [0] * length, PoolingParams(task), 0, length)
            batch = make_batch([request], self._device)
            pooled = pooling.pool(model(batch), batch, [request], model.adapters.for_all)
            (result,) = pooling.conclude(pooled)
            if result.data is None:
                raise ModelLoadError(f"The model can't be served ({task}): {result.error}")
            if task in ("embed", "token_embed"):
                size = size or result.data.shape[-1]
        return size


def _check_same(old: ModelConfig, new: ModelConfig) -> None:
    for name in _FIXED:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            raise ModelLoadError(
                f"The new checkpoint has {name} {after!r}; the served model has {before!r}."
            )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
