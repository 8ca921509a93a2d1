"""Which tensors of a checkpoint fill which parameter, decided from names and shapes alone.

It reads no weights and knows no files, so it can say everything that is wrong before any work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cenote.errors import ModelLoadError
from cenote.loader.rules import Ignore, Rename, Rule, Stack, Transpose, match

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class Source:
    """One tensor that fills a parameter, or the part `index` of `count` on dimension 0."""

    tensor: str
    transpose: bool = False
    index: int = 0
    count: int = 1

    def shape(self, shapes: Shapes) -> Shape:
        """The tensor's shape as it is laid into the parameter."""
        shape = shapes[self.tensor]
        return shape[::-1] if self.transpose else shape


Plan = dict[str, list[Source]]


def make_plan(rules: Sequence[Rule], tensors: Shapes, parameters: Shapes) -> Plan:
    """For each parameter, in their order, the tensors that fill it.

    First matching rule wins; a tensor without one fills the parameter of its own name. Raises one
    `ModelLoadError` with every missing parameter, unused tensor, doubly filled parameter and
    mismatched shape.
    """
    assigned, unused = assign_all(rules, tensors, parameters)
    problems = [f"unused tensor: {name}" for name in unused]
    plan: Plan = {}
    for parameter, shape in parameters.items():
        sources = assigned.get(parameter, [])
        problems += _problems(parameter, shape, sources, tensors)
        plan[parameter] = sources
    if problems:
        raise ModelLoadError("The checkpoint does not fit the model:\n  " + "\n  ".join(problems))
    return plan


def assign_all(
    rules: Sequence[Rule], tensors: Shapes, parameters: Shapes
) -> tuple[Plan, list[str]]:
    """The tensors of each parameter that has any, in the order of their parts, and the names of
    tensors that no parameter wants."""
    assigned: Plan = {}
    unused = []
    for name in sorted(tensors):
        target, source = assign(rules, name, parameters)
        if target is None:
            continue
        if target in parameters:
            assigned.setdefault(target, []).append(source)
        else:
            unused.append(name if target == name else f"{name} (for {target})")
    for sources in assigned.values():
        sources.sort(key=lambda source: source.index)
    return assigned, unused


def assign(rules: Sequence[Rule], name: str, parameters: Shapes) -> tuple[str | None, Source]:
    """The parameter that tensor `name` is for (None: ignored), and how it is laid into it."""
    for rule in rules:
        target = match(rule, name)
        if target is None:
            continue
        if isinstance(rule, Ignore):
            return None, Source(name)
        if isinstance(rule, Rename) and rule.optional and target not in parameters:
            return None, Source(name)
        if isinstance(rule, Stack):
            return target, Source(name, index=rule.index, count=rule.count)
        return target, Source(name, transpose=isinstance(rule, Transpose))
    return name, Source(name)


def _problems(parameter: str, shape: Shape, sources: list[Source], tensors: Shapes) -> list[str]:
    if not sources:
        return [f"missing parameter: {parameter}"]
    names = ", ".join(source.tensor for source in sources)
    indices = [source.index for source in sources]
    count = sources[0].count
    if len(set(indices)) < len(indices) or any(source.count != count for source in sources):
        return [f"filled more than once: {parameter} (by {names})"]
    if len(indices) < count:
        absent = sorted(set(range(count)) - set(indices))
        return [f"missing parameter: {parameter} (part {absent} of {count}; there is {names})"]
    found = _joined([source.shape(tensors) for source in sources])
    if found != shape:
        shapes = " + ".join(str(list(source.shape(tensors))) for source in sources)
        return [f"wrong shape: {parameter} is {list(shape)}, but {names} is {shapes}"]
    return []


def _joined(shapes: list[Shape]) -> Shape | None:
    """The shape of tensors put together on dimension 0, None where they don't fit together."""
    if len(shapes) == 1:
        return shapes[0]
    if not all(shapes) or len({shape[1:] for shape in shapes}) > 1:
        return None
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])
