"""Answers on their way from the device to the host. It knows no model and no requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cenote.runner.late_interaction_runner import Answer, not_finite
from cenote.step import PooledResult


def joined(results: Sequence[PooledResult]) -> list[PooledResult]:
    """One result for each request: that of its first task, with the others (and errors) in it."""
    mains: dict[str, PooledResult] = {}
    for result in results:
        main = mains.setdefault(result.request_id, result)
        if main is not result:
            main.error = main.error or result.error
            main.more.append(result)
    return list(mains.values())


def to_host(answers: Sequence[tuple[str, Answer]]) -> list[PooledResult]:
    """One copy from the device for all data, one for all indices; NaN and infinity are errors."""
    flat, data = _host_parts([answer.data for _, answer in answers], torch.float32)
    _, indices = _host_parts([answer.indices for _, answer in answers], torch.int32)
    all_finite = bool(np.isfinite(flat).all())
    results = []
    for (request_id, answer), part, positions in zip(answers, data, indices, strict=True):
        if answer.error is not None:
            results.append(PooledResult(request_id, error=answer.error))
        elif part is not None and (all_finite or np.isfinite(part).all()):
            results.append(PooledResult(request_id, part, positions))
        else:
            results.append(PooledResult(request_id, error=not_finite()))
    return results


def _host_parts(
    tensors: Sequence[Tensor | None], dtype: torch.dtype
) -> tuple[NDArray[Any], list[NDArray[Any] | None]]:
    """All numbers in one array, and each tensor's part of it as a view."""
    given = [tensor.reshape(-1) for tensor in tensors if tensor is not None]
    if not given:
        return np.empty(0), [None] * len(tensors)
    flat: NDArray[Any] = torch.cat(given).to("cpu", dtype).numpy()
    parts: list[NDArray[Any] | None] = []
    start = 0
    for tensor in tensors:
        if tensor is None:
            parts.append(None)
        else:
            end = start + tensor.numel()
            parts.append(flat[start:end].reshape(tensor.shape))
            start = end
    return flat, parts
