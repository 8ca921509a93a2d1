"""Vectors as the body itself: one after the other, described by the header `metadata`.

Smaller and cheaper than base64 in JSON, for clients that take it. It knows no task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from starlette.responses import Response

from cenote.server.encoding import Encoding, to_json


@dataclass(frozen=True, slots=True)
class RawItem:
    """One input's vector or matrix, and what its entry in the header tells beside its place."""

    array: NDArray[Any]
    prompt_tokens: int
    truncated: bool


def raw_response(frame: dict[str, Any], encoding: Encoding, items: Sequence[RawItem]) -> Response:
    """The answer for `bytes` and, without the header, for `bytes_only`.

    The header holds the frame with `data`: for each input where its bytes start and end, their
    shape, number format and byte order. It has non-ASCII characters escaped, as headers need.
    """
    pieces = [encoding.raw(item.array) for item in items]
    headers = {}
    if encoding.format == "bytes":
        frame["data"] = list(_places(encoding, items, pieces))
        headers["metadata"] = _ascii(to_json(frame))
    return Response(b"".join(pieces), headers=headers, media_type="application/octet-stream")


def _places(
    encoding: Encoding, items: Sequence[RawItem], pieces: Sequence[bytes]
) -> list[dict[str, Any]]:
    places = []
    start = 0
    for index, (item, piece) in enumerate(zip(items, pieces, strict=True)):
        end = start + len(piece)
        places.append(
            {
                "index": index,
                "embed_dtype": encoding.dtype_of(item.array),
                "endianness": encoding.endianness,
                "start": start,
                "end": end,
                "shape": list(item.array.shape),
                "prompt_tokens": item.prompt_tokens,
                "truncated": item.truncated,
            }
        )
        start = end
    return places


def _ascii(json: bytes) -> str:
    """JSON text with every character beyond ASCII as an escape (pairs for the upper planes)."""
    text = json.decode("utf-8")
    if text.isascii():
        return text
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
