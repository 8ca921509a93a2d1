"""Python's garbage collector beside work that makes many objects and few reference cycles.

It knows nothing of what that work is.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# New objects between two looks at them. By default it is 700, which a few requests make, so that
# every look finds the requests under way alive: a fifth of the API process's time.
_NEW_OBJECTS = 50_000

_lock = threading.Lock()
_jobs = 0
_usual = gc.get_threshold()


def settle() -> None:
    """For a process of our own, once all is loaded: what is there now stays and isn't looked
    through any more, and what comes is looked through rarely. Nearly all of it goes by itself,
    without the collector."""
    gc.collect()
    gc.freeze()
    _look_rarely()


@contextmanager
def rarely() -> Iterator[None]:
    """For a job in somebody else's process, which has its own settings again after the last job
    that runs at the same time."""
    global _jobs, _usual
    with _lock:
        if _jobs == 0:
            _usual = gc.get_threshold()
            _look_rarely()
        _jobs += 1
    try:
        yield
    finally:
        with _lock:
            _jobs -= 1
            if _jobs == 0:
                gc.set_threshold(*_usual)


def _look_rarely() -> None:
    first, middle, old = gc.get_threshold()
    if first:  # 0: it is switched off
        gc.set_threshold(max(first, _NEW_OBJECTS), middle, old)
