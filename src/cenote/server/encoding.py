"""Vectors on the wire: JSON floats, base64 or raw bytes, in a number format and byte order.

NumPy arrays in, wire values out; it knows nothing of HTTP or of who asked. `base64` of float32 in
little-endian order is what OpenAI's clients ask for by default, so that must be exact.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import orjson
from numpy.typing import NDArray

from cenote.outputs import SparseEmbedding

EncodingFormat = Literal["float", "base64", "bytes", "bytes_only"]
EmbedDType = Literal["float32", "float16", "bfloat16"]
Endianness = Literal["native", "big", "little"]

ENCODING_FORMATS: tuple[EncodingFormat, ...] = get_args(EncodingFormat)

_ORDERS: dict[Endianness, Literal["=", ">", "<"]] = {"native": "=", "big": ">", "little": "<"}


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a caller wants vectors. `float` ignores `dtype` and `endianness`."""

    format: EncodingFormat = "float"
    dtype: EmbedDType = "float32"
    endianness: Endianness = "native"

    @property
    def is_raw(self) -> bool:
        """Whether the answer's body is the vectors' bytes and not JSON."""
        return self.format in ("bytes", "bytes_only")

    def value(self, array: NDArray[np.float32]) -> NDArray[np.float32] | str:
        """What stands in the JSON for one vector or matrix: itself (see `to_json`) or base64."""
        if self.format == "float":
            return array
        return b64encode(self.raw(array)).decode("ascii")

    def raw(self, array: NDArray[np.float32]) -> bytes:
        """The bytes of a float32 array in `dtype` and `endianness`, rows after rows."""
        order = _ORDERS[self.endianness]
        if self.dtype == "bfloat16":
            return _bfloat16_bits(array).astype(f"{order}u2", copy=False).tobytes()
        kind = "f2" if self.dtype == "float16" else "f4"
        return array.astype(f"{order}{kind}", copy=False).tobytes()


def sparse_json(vector: SparseEmbedding) -> dict[str, Any]:
    """A sparse vector for `to_json`; `tokens` only where the result has them."""
    tokens = {} if vector.tokens is None else {"tokens": vector.tokens}
    return {"indices": vector.token_ids, "values": vector.weights, **tokens}


def to_json(value: Any) -> bytes:
    """JSON in which float32 arrays are written with the fewest digits that read back the same."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _bfloat16_bits(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded to nearest, ties to even, as IEEE 754 rounds."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded: NDArray[np.uint32] = bits + (np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)))
    return (rounded >> 16).astype(np.uint16)
