"""SentencePiece's model file: its pieces, and how it treats a text before it cuts it.

Read from protobuf's wire format, so that no library is needed. Facts: sentencepiece_model.proto of
google/sentencepiece, of which only the fields that change how a text is cut are read. It knows no
family of models and makes no tokenizer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from cenote.errors import ModelLoadError

Value = int | bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class Kind(IntEnum):
    """What a piece is: only NORMAL ones are found by score."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """A vocabulary entry; its id is its place."""

    text: str
    score: float
    kind: Kind


@dataclass(slots=True)
class SentencePiece:
    """A model file with SentencePiece's own defaults.

    `charsmap` is a compiled normaliser (empty: none). `add_prefix` puts a space before a text,
    `collapse_spaces` leaves one of several and none at the ends, `escape_spaces` writes ▁ for them.
    """

    pieces: list[Piece] = field(default_factory=list)
    algorithm: str = "unigram"
    unk_id: int = 0
    byte_fallback: bool = False
    space_after: bool = False
    charsmap: bytes = b""
    add_prefix: bool = True
    collapse_spaces: bool = True
    escape_spaces: bool = True


def read_sentencepiece(path: Path) -> SentencePiece:
    """Reads a model file. Raises `ModelLoadError`."""
    try:
        model = _model(path.read_bytes())
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise ModelLoadError(f"{path} is not a SentencePiece model: {error}") from error
    if not model.pieces or not 0 <= model.unk_id < len(model.pieces):
        raise ModelLoadError(
            f"{path} has {len(model.pieces)} pieces, and {model.unk_id} for what is unknown."
        )
    return model


def _model(data: bytes) -> SentencePiece:
    model = SentencePiece()
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            model.pieces.append(_piece(value))
        elif number == 2:
            _trainer(model, dict(_fields(value)))
        elif number == 3:
            _normalizer(model, dict(_fields(value)))
    return model


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    (score,) = struct.unpack("<f", _bytes(fields, 2) or bytes(4))
    return Piece(_bytes(fields, 1).decode("utf-8"), score, Kind(_integer(fields, 3, Kind.NORMAL)))


def _trainer(model: SentencePiece, fields: dict[int, Value]) -> None:
    model.algorithm = _ALGORITHMS[_integer(fields, 3, 1)]
    model.space_after = bool(_integer(fields, 24, 0))
    model.byte_fallback = bool(_integer(fields, 35, 0))
    model.unk_id = _integer(fields, 40, 0)


def _normalizer(model: SentencePiece, fields: dict[int, Value]) -> None:
    model.charsmap = _bytes(fields, 2)
    model.add_prefix = bool(_integer(fields, 3, 1))
    model.collapse_spaces = bool(_integer(fields, 4, 1))
    model.escape_spaces = bool(_integer(fields, 5, 1))


def _integer(fields: dict[int, Value], number: int, default: int) -> int:
    value = fields.get(number, default)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no integer")
    return value


def _bytes(fields: dict[int, Value], number: int) -> bytes:
    value = fields.get(number, b"")
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is no string")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message: their numbers, and integers or bytes (a float is its four bytes)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"it ends within a field at byte {at}")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(f"an endless integer at byte {at}")
