"""Weight rules: how a checkpoint's tensor names become a model's parameter names.

A model lists its rules; the loader applies them in order, first match wins, and afterwards demands
that every parameter was filled and every tensor used or ignored. Rules know no files and no dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Rename:
    """A tensor whose name matches `pattern` fills the parameter named by `target` (re.sub form).

    `optional`: a configuration may do without the parameter; the tensor is then not needed.
    """

    pattern: str
    target: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """A tensor fills one part of a parameter made by concatenation on dimension 0.

    E.g. query, key and value into one `qkv`: index 0, 1, 2 of 3. With grouped-query attention the
    parts differ in size, so they are laid by what arrives, in index order.
    """

    pattern: str
    target: str
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Ignore:
    """A tensor that is known and not needed (a position buffer, an unused head)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Transpose:
    """As `Rename`, for a matrix stored `[in, out]` (GPT-2's Conv1D)."""

    pattern: str
    target: str


Rule = Rename | Stack | Ignore | Transpose


def under(prefix: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The same rules for a checkpoint that has `prefix` (a pattern) before all these names."""
    return tuple(replace(rule, pattern=prefix + rule.pattern) for rule in rules)


def match(rule: Rule, name: str) -> str | None:
    """The parameter that `rule` sends `name` to ("" where it ignores it); None: no match."""
    found = re.fullmatch(rule.pattern, name)
    if found is None:
        return None
    return "" if isinstance(rule, Ignore) else found.expand(rule.target)
