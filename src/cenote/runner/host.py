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
    if not answers:
        return []
    flat, data = _on_host([answer.data for _, answer in answers], torch.float32)
    _, indices = _on_host([answer.indices for _, answer in answers], torch.int32)
    all_finite = bool(np.isfinite(flat).all())
    results = []
    for request_id, answer in answers:
        part, positions = data[id(answer.data)], indices[id(answer.indices)]
        if part is not None and answer.row is not None:
            part = part[answer.row]
        if answer.error is not None:
            results.append(PooledResult(request_id, error=answer.error))
        elif part is not None and (all_finite or np.isfinite(part).all()):
            results.append(PooledResult(request_id, part, positions))
        else:
            results.append(PooledResult(request_id, error=not_finite()))
    return results


def _on_host(
    tensors: Sequence[Tensor | None], dtype: torch.dtype
) -> tuple[NDArray[Any], dict[int, NDArray[Any] | None]]:
    """All numbers in one array, and each tensor's part of it as a view, by the tensor's `id`: what
    requests share is copied once."""
    given = {id(tensor): tensor for tensor in tensors if tensor is not None}
    parts: dict[int, NDArray[Any] | None] = {id(None): None}
    if not given:
        return np.empty(0), parts
    flat: NDArray[Any] = (
        torch.cat([tensor.reshape(-1) for tensor in given.values()]).to("cpu", dtype).numpy()
    )
    start = 0
    for key, tensor in given.items():
        end = start + tensor.numel()
        parts[key] = flat[start:end].reshape(tensor.shape)
        start = end
    return flat, parts
