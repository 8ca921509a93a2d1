"""Vectors in fewer bits: int8, uint8, binary and ubinary, for every dialect and offline alike.

The formulas are those of sentence-transformers' `quantize_embeddings`. What a vector becomes never
depends on the others of its request: without calibration the range of every dimension is [-1, 1],
which holds every unit vector. It knows nothing of HTTP or of models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cenote.errors import InvalidRequest, ModelLoadError

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

# The least value and the step of each dimension, or of all.
Scale = tuple[NDArray[np.float32], NDArray[np.float32]]

_UNIT_SCALE: Scale = (np.array([-1], np.float32), np.array([2 / 255], np.float32))
# A unit vector's rounding error.
_SLACK = 1e-4


def check_precision(precision: str, dim: int | None = None, *, param: str = "precision") -> None:
    """Refuses an unknown precision, and bits of a vector that don't fill whole bytes."""
    if precision not in PRECISIONS:
        raise InvalidRequest(
            f"{param} must be one of {', '.join(PRECISIONS)}, not {precision!r}.", param=param
        )
    if precision.endswith("binary") and dim is not None and dim % 8:
        raise InvalidRequest(
            f"{precision} packs 8 dimensions into a byte, so it needs a multiple of 8 dimensions, "
            f"not {dim}.",
            param=param,
        )


class Quantizer:
    """Quantises vectors; `calibration` `[n, dim]` are vectors whose ranges are taken for int8.

    Without it every dimension has the range [-1, 1]. A vector with a value outside of that is
    refused, since cutting it would be silent; with calibration, values beyond its range are cut to
    it, as the reference does. Thread-safe.
    """

    def __init__(self, calibration: NDArray[np.float32] | None = None) -> None:
        self._calibration = calibration
        self._scales: dict[int, Scale] = {}

    @classmethod
    def from_file(cls, path: str | None) -> Quantizer:
        """From a .npy file of calibration vectors; None: without. Raises `ModelLoadError`."""
        if path is None:
            return cls()
        try:
            vectors = np.load(Path(path).expanduser(), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ModelLoadError(f"calibration {path!r} can't be read: {error}") from error
        if vectors.ndim != 2 or len(vectors) < 2 or not np.isfinite(vectors).all():
            raise ModelLoadError(
                f"calibration {path!r} must hold at least two finite vectors [n, dim]; its shape "
                f"is {vectors.shape}."
            )
        return cls(vectors.astype(np.float32))

    def quantize(
        self, vectors: NDArray[np.float32], precision: Precision, *, param: str = "precision"
    ) -> NDArray[Any]:
        """Vectors `[…, dim]` as int8 or uint8 `[…, dim]`, or as bits `[…, dim / 8]`.

        int8 and uint8: 256 equal steps between a dimension's least and greatest value. ubinary: the
        sign bits (value > 0), most significant first; binary: those bytes less 128. Raises
        `InvalidRequest` naming `param`.
        """
        check_precision(precision, vectors.shape[-1], param=param)
        if precision == "float32":
            return vectors
        if precision.endswith("binary"):
            bits = np.packbits(vectors > 0, axis=-1)
            return bits if precision == "ubinary" else (bits ^ 0x80).view(np.int8)
        starts, steps = self._scale(vectors, param)
        levels: NDArray[np.float32] = np.clip(np.floor((vectors - starts) / steps), 0, 255)
        return levels.astype(np.uint8) if precision == "uint8" else (levels - 128).astype(np.int8)

    def _scale(self, vectors: NDArray[np.float32], param: str) -> Scale:
        """Each dimension's least value and its step."""
        if self._calibration is None:
            largest = float(np.abs(vectors).max(initial=0.0))
            if largest > 1 + _SLACK:
                raise InvalidRequest(
                    f"int8 and uint8 without calibration are for values in [-1, 1], not "
                    f"{largest:.4g}: normalise the vectors, or start with --calibration.",
                    param=param,
                )
            return _UNIT_SCALE
        dim = vectors.shape[-1]
        known = self._calibration.shape[1]
        if dim > known:
            raise InvalidRequest(
                f"The calibration vectors have {known} dimensions, not {dim}.", param=param
            )
        if dim not in self._scales:
            self._scales[dim] = _scale_of(self._calibration, dim)
        return self._scales[dim]


def _scale_of(calibration: NDArray[np.float32], dim: int) -> Scale:
    """The scale of the first `dim` dimensions; unit vectors that are cut are normalised again."""
    vectors = calibration[:, :dim]
    if dim < calibration.shape[1] and np.allclose(
        np.linalg.norm(calibration, axis=1), 1, atol=1e-3
    ):
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    starts = vectors.min(axis=0)
    steps = (vectors.max(axis=0) - starts) / 255
    return starts, np.where(steps == 0, np.float32(1), steps)
