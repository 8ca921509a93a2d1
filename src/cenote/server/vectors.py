"""How one request wants its vectors, and what stands in the answer for each of them.

It joins the quantiser of a model with the encoding of a request; it knows no route.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cenote.processors.quantize import Precision, Quantizer, check_precision
from cenote.server.encoding import Encoding, VectorType, typed

_NOT_QUANTISED = ("float", "base64")


@dataclass(frozen=True, slots=True)
class Wire:
    """`kinds` are forms that an answer has side by side; None: one form, by the other fields.

    `param` is the request's field that named the precision or the kinds.
    """

    encoding: Encoding
    quantizer: Quantizer
    precision: Precision = "float32"
    kinds: list[VectorType] | None = None
    param: str = "output_dtype"

    def check(self, dim: int) -> None:
        """Refuses what vectors of `dim` can't be turned into, before they are made."""
        for kind in self.kinds or (self.precision,):
            if kind not in _NOT_QUANTISED:
                check_precision(kind, dim, param=self.param)

    def array(self, vector: NDArray[np.float32]) -> NDArray[Any]:
        """A vector `[…, dim]` in the precision asked for."""
        return self.quantizer.quantize(vector, self.precision, param=self.param)

    def value(self, vector: NDArray[np.float32]) -> Any:
        """What stands in the JSON for a vector: numbers, base64, or an object with each kind."""
        if self.kinds is None:
            return self.encoding.value(self.array(vector))
        return {kind: typed(vector, kind, self.quantizer, param=self.param) for kind in self.kinds}
