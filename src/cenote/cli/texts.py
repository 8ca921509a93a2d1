"""Where a command's texts come from: arguments, a file or stdin, in order, each with its place.

It knows no models. Text files hold one text a line; JSONL files (.jsonl, .ndjson) hold strings, or
objects whose text stands under a named field.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

from cenote.errors import InvalidRequest

ItemT = TypeVar("ItemT")

JSONL_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class Text:
    """A text and where it stands, for messages: `line 7 of notes.txt`, `argument 2`."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and a document, and where they stand."""

    query: str
    document: str
    place: str


def read_texts(arguments: Sequence[str], file: Path | None, field: str) -> Iterator[Text]:
    """The texts in order. `file` may be `-`; without arguments and file, a pipe on stdin is read.

    Raises `InvalidRequest` at once where there is nothing to read, and while reading for a line
    that is wrong, by its number.
    """
    if arguments and file is not None:
        raise InvalidRequest("Give texts as arguments or with --input, not both.", param="input")
    if arguments:
        return (Text(text, f"argument {index}") for index, text in enumerate(arguments, start=1))
    if file is None and sys.stdin.isatty():
        raise InvalidRequest(
            "No text given. Write it as an argument, or use --input FILE (- is stdin).",
            param="input",
        )
    file = file or Path("-")
    is_jsonl = file.suffix in JSONL_SUFFIXES
    return (
        Text(_field_of(line, field, "--field"), line.place) if is_jsonl else line
        for line in _lines(_open(file), file)
    )


def read_pairs(file: Path, query: str, document: str) -> Iterator[Pair]:
    """The pairs of a JSONL file (`-` is stdin), by the names of their fields. Raises as
    `read_texts`."""
    return (
        Pair(
            _field_of(line, query, "--query-field"),
            _field_of(line, document, "--document-field"),
            line.place,
        )
        for line in _lines(_open(file), file)
    )


def _lines(opened: AbstractContextManager[IO[bytes]], file: Path) -> Iterator[Text]:
    name = "stdin" if str(file) == "-" else str(file)
    with opened as stream:
        for number, raw in enumerate(stream, start=1):
            place = f"line {number} of {name}"
            try:
                yield Text(raw.decode("utf-8").rstrip("\r\n"), place)
            except UnicodeDecodeError as error:
                raise InvalidRequest(f"{place}: not UTF-8 ({error.reason}).") from error


def _open(file: Path) -> AbstractContextManager[IO[bytes]]:
    if str(file) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidRequest(f"Can't read {file}: {error.strerror}.", param="input") from error


def _field_of(line: Text, field: str, flag: str) -> str:
    """A line's own string, or its object's under `field`, which `flag` chooses."""
    place = line.place
    try:
        value = json.loads(line.text)
    except ValueError as error:
        raise InvalidRequest(f"{place}: not JSON ({error}).") from error
    if isinstance(value, dict):
        if field not in value:
            raise InvalidRequest(
                f"{place}: no field {field!r}; it has {sorted(value)}. Choose one with {flag}."
            )
        value = value[field]
    if not isinstance(value, str):
        raise InvalidRequest(f"{place}: expected a string, not {type(value).__name__}.")
    return value


def count_lines(file: Path | None) -> int | None:
    """How many texts a file holds, for a progress bar; None where it can't be read twice."""
    if file is None or not file.is_file():
        return None
    with file.open("rb") as stream:
        return sum(1 for _ in stream)


def chunks(items: Iterator[ItemT], size: int) -> Iterator[list[ItemT]]:
    """Consecutive lists of at most `size` items: memory stays bounded on a file of any length."""
    while chunk := list(islice(items, size)):
        yield chunk
