"""A candidate in a process of its own, maybe of another environment's interpreter.

So no candidate's threads, memory or libraries touch another's, and each one's peak memory and
start-up are its own.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.work import Array

ROOT = Path(__file__).parents[1]


class Missing(Exception):
    """The candidate's library is not in that environment."""


class Remote:
    """One candidate; see `benchmarks.worker`.

    `start_seconds` runs from the start of its process to its first vector.
    Raises `Missing`, and RuntimeError where the candidate fails.
    """

    def __init__(
        self, name: str, place: str, model: str, keywords: dict[str, Any], python: str, first: Any
    ) -> None:
        self.name = name
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", place, name, model, json.dumps(keywords)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCHMARK_VERBOSE") else subprocess.DEVNULL,
            cwd=ROOT,
            env=_environment(python),
        )
        try:
            self._receive()
            self.run(first)
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - began

    def run(self, work: Any) -> Array:
        return self.timed(work)[0]

    def timed(self, work: Any, method: str = "run") -> tuple[Any, float, float]:
        """The result, and the seconds it took in the candidate's process: clock and processor."""
        done: tuple[Any, float, float] = self._ask(method, work)
        return done

    @property
    def peak_mib(self) -> float:
        """The most memory that it has had."""
        return float(self._ask("peak", None))

    @property
    def resident_mib(self) -> float:
        return float(self._ask("memory", None))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, method: str, given: Any) -> Any:
        assert self._process.stdin is not None
        try:
            pickle.dump((method, given), self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # What it said last is still to be read.
        return self._receive()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        try:
            kind, content = pickle.load(self._process.stdout)
        except EOFError:
            raise RuntimeError(
                f"{self.name}: its process ended; BENCHMARK_VERBOSE=1 shows what it wrote."
            ) from None
        if kind == "missing":
            raise Missing(content)
        if kind == "failed":
            raise RuntimeError(f"{self.name}: {content}")
        return content


def _environment(python: str) -> dict[str, str]:
    """Offline; ours finds this source tree, another interpreter finds only `benchmarks`."""
    paths = [str(ROOT), str(ROOT / "src")] if python == sys.executable else [str(ROOT)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "true",
        "DO_NOT_TRACK": "1",
    }
