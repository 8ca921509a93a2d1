"""Python's garbage collector in processes that serve for long. It knows nothing of what they do."""

from __future__ import annotations

import gc

# New objects between two looks at them. By default it is 700, which a few requests make, so that
# every look finds the requests under way alive: a fifth of the API process's time.
_NEW_OBJECTS = 50_000


def settle() -> None:
    """Call it once all is loaded: what is there now stays and isn't looked through any more, and
    what comes is looked through rarely. Nearly all of it goes by itself, without the collector."""
    gc.collect()
    gc.freeze()
    _, middle, old = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, middle, old)
