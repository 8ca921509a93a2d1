"""Vectors on the wire: JSON numbers, base64 or raw bytes, in a number format and byte order.

NumPy arrays in, wire values out; it knows nothing of HTTP or of who asked. `base64` of float32 in
little-endian order is what OpenAI's clients ask for by default, so that must be exact.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from cenote.outputs import SparseEmbedding
from cenote.processors.quantize import Quantizer

EncodingFormat = Literal["float", "base64", "bytes", "bytes_only"]
EmbedDType = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
Endianness = Literal["native", "big", "little"]

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

    def value(self, array: NDArray[Any]) -> NDArray[Any] | str:
        """What stands in the JSON for one vector or matrix: itself (see `to_json`) or base64."""
        if self.format == "float":
            return array
        return b64encode(self.raw(array)).decode("ascii")

    def raw(self, array: NDArray[Any]) -> bytes:
        """The bytes of a float32 array in `dtype` and `endianness`, rows after rows.

        A quantised array (see `processors.quantize`) goes out as it is: `dtype` is for floats.
        """
        if array.dtype.itemsize == 1:
            return array.tobytes()
        order = _ORDERS[self.endianness]
        if self.dtype == "bfloat16":
            return _bfloat16_bits(array).astype(f"{order}u2", copy=False).tobytes()
        if self.dtype.startswith("fp8"):
            return _fp8(array, self.dtype)
        kind = "f2" if self.dtype == "float16" else "f4"
        return array.astype(f"{order}{kind}", copy=False).tobytes()

    def dtype_of(self, array: NDArray[Any]) -> str:
        """The number format in which `raw` gives an array."""
        return str(array.dtype) if array.dtype.itemsize == 1 else self.dtype


# The forms of one vector that Cohere's and Jina's callers ask for by name, several at once.
VectorType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]


def typed(
    vector: NDArray[np.float32], kind: VectorType, quantizer: Quantizer, *, param: str
) -> NDArray[Any] | str:
    """A vector in one of the named forms; base64 is that of its little-endian float32 bytes."""
    if kind == "base64":
        return Encoding("base64", endianness="little").value(vector)
    if kind == "float":
        return vector
    return quantizer.quantize(vector, kind, param=param)


def sparse_json(vector: SparseEmbedding) -> dict[str, Any]:
    """A sparse vector for `to_json`; `tokens` only where the result has them."""
    tokens = {} if vector.tokens is None else {"tokens": vector.tokens}
    return {"indices": vector.token_ids, "values": vector.weights, **tokens}


def to_json(value: Any) -> bytes:
    """JSON in which float32 arrays are written with the fewest digits that read back the same."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _fp8(array: NDArray[np.float32], dtype: EmbedDType) -> bytes:
    """One byte a number, rounded to nearest even: OCP's 8-bit floats (e4m3 without infinities)."""
    from ml_dtypes import float8_e4m3fn, float8_e5m2

    return array.astype(float8_e4m3fn if dtype == "fp8_e4m3" else float8_e5m2).tobytes()


def _bfloat16_bits(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded to nearest, ties to even, as IEEE 754 rounds."""
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded: NDArray[np.uint32] = bits + (np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)))
    return (rounded >> 16).astype(np.uint16)
