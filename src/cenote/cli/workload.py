"""English texts of chosen lengths, for `bench` and `benchmarks/`: the same ones on every machine.

The source is Python's own language manual, which ships with the interpreter (pydoc_data.topics).
Lengths are asked for in tokens and met on average; what is reported is always counted, not asked.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from functools import cache
from typing import Literal

Workload = Literal["short", "passages", "long"]

# Measured for WordPiece with BERT's uncased vocabulary on this source.
TOKENS_PER_WORD = 1.18
SPECIAL_TOKENS = 2


@cache
def words() -> tuple[str, ...]:
    """The manual's running text as words, in order, with their commas and full stops."""
    from pydoc_data.topics import topics

    text = " ".join(topics[name] for name in sorted(topics))
    return tuple(re.findall(r"(?<![\w.*`])[A-Za-z][A-Za-z'-]*[.,;]?(?=\s)", text))


def _short(rng: random.Random) -> float:
    return rng.uniform(4, 32)


def _passage(rng: random.Random) -> float:
    return min(512.0, max(16.0, rng.lognormvariate(math.log(120), 0.7)))


def _long(rng: random.Random) -> float:
    return rng.uniform(512, 2048)


LENGTHS: dict[Workload, Callable[[random.Random], float]] = {
    "short": _short,
    "passages": _passage,
    "long": _long,
}


def make_texts(workload: Workload, count: int, seed: int = 0) -> list[str]:
    """`count` different texts: `short` 4-32 tokens, `passages` log-normal with median 120 in
    16-512, `long` 512-2048."""
    rng = random.Random(seed)
    source = words()
    made = []
    for _ in range(count):
        tokens = LENGTHS[workload](rng) - SPECIAL_TOKENS
        size = max(1, round(tokens / TOKENS_PER_WORD))
        start = rng.randrange(len(source) - size)
        made.append(" ".join(source[start : start + size]))
    return made
