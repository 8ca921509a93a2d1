"""`python -m benchmarks.worker MODULE:CLASS NAME MODEL ARGUMENTS`: one candidate in one process.

Requests come on stdin and answers go to what was stdout, as pickles: the parent is our own
benchmark. What a library prints goes to stderr. Nothing of Cenote is imported here unless the
candidate is Cenote, so it runs in any environment with numpy.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import sys
import time
from importlib import import_module
from typing import Any, BinaryIO


def main(arguments: list[str]) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    place, name, model, keywords = arguments
    try:
        candidate = _load(place, name, model, json.loads(keywords))
    except ImportError as error:
        _send(answers, ("missing", str(error)))
        return
    _send(answers, ("ready", None))
    while True:
        try:
            method, given = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        _send(answers, _call(candidate, method, given))
    candidate.close()


def _load(place: str, name: str, model: str, keywords: dict[str, Any]) -> Any:
    module, kind = place.split(":")
    made = getattr(import_module(f"benchmarks.candidates.{module}"), kind)
    return made(name, model, **keywords)


def _call(candidate: Any, method: str, given: Any) -> tuple[str, Any]:
    """What a request asks for. Times are of the call alone, not of the pipe."""
    if method == "peak":
        return "done", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if method == "memory":
        return "done", _resident()
    gc.collect()
    began, cpu_began = time.perf_counter(), time.process_time()
    try:
        result = getattr(candidate, method)(given)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return "done", (result, seconds, cpu)


def _resident() -> float:
    """Resident memory now, in MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _send(answers: BinaryIO, message: object) -> None:
    pickle.dump(message, answers)
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
