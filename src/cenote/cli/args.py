"""Command-line flags made from the fields of the config dataclasses, so that none is written twice.

A field's name, type, default and `help` become one option; a field whose type is a Literal offers
its choices. It knows nothing of what the settings mean.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

# The letters of the most used flags.
LETTERS = {"model": "-m", "port": "-p"}

Command = Callable[..., None]


def with_flags(*, leave_out: tuple[str, ...] = (), **configs: type) -> Callable[[Command], Command]:
    """Gives a command the flags of config classes; it gets the configs by their keyword names.

    `@with_flags(engine=EngineConfig)` turns `f(texts, *, engine)` into a command that has the
    parameters of `f` and one flag for each field of EngineConfig but those in `leave_out`.
    Raises `InvalidRequest` when called, where the config refuses a value.
    """

    def decorate(command: Command) -> Command:
        own = [
            parameter
            for name, parameter in inspect.signature(command, eval_str=True).parameters.items()
            if name not in configs
        ]
        flags = {name: _flags(cls, leave_out) for name, cls in configs.items()}

        @functools.wraps(command)
        def run(**values: Any) -> None:
            for name, cls in configs.items():
                given = {flag.name: values.pop(flag.name) for flag in flags[name]}
                values[name] = cls(**{key: _plain(value) for key, value in given.items()})
            command(**values)

        made = [flag for group in flags.values() for flag in group]
        run.__signature__ = inspect.Signature([*own, *made])  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in (*own, *made)}
        return run

    return decorate


def _plain(value: Any) -> Any:
    """Options that can be repeated arrive as lists; configs are frozen and want tuples."""
    return tuple(value) if isinstance(value, list) else value


def _flags(cls: type, leave_out: tuple[str, ...]) -> list[inspect.Parameter]:
    hints = get_type_hints(cls)
    return [
        _flag(item, hints[item.name])
        for item in fields(cls)
        if item.name not in leave_out and item.init
    ]


def _flag(item: Field[Any], hint: Any) -> inspect.Parameter:
    names = option_names(item, hint)
    if item.name in LETTERS:
        names.append(LETTERS[item.name])
    default: Any = item.default  # every field of a config has one
    kind = _parsed_type(hint)
    if get_origin(kind) is list:
        default = list(default)
    option = typer.Option(
        *names,
        help=item.metadata.get("help"),
        show_default=default not in (None, [], ()),
    )
    return inspect.Parameter(
        item.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def option_names(item: Field[Any], hint: Any) -> list[str]:
    """`--max-num-seqs`, and `--normalize/--no-normalize` where the field is a yes or no."""
    name = item.name.replace("_", "-")
    return [f"--{name}/--no-{name}"] if bool in (hint, *get_args(hint)) else [f"--{name}"]


def _parsed_type(hint: Any) -> Any:
    """The type that the option's text is parsed into: `tuple[str, ...]` is an option to repeat."""
    if get_origin(hint) in (tuple, frozenset):
        return list[get_args(hint)[0]]  # type: ignore[misc]
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        return _parsed_type(inner) | None
    return hint
