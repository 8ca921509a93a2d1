"""MaxSim of late interaction (Khattab and Zaharia 2020, arXiv:2004.12832), on packed documents.

Each query row takes its largest dot product over a document's rows; a score is the sum of those.
One product over the pack and a maximum by segment: no padded score matrix. It knows nothing of
where vectors came from or how long they are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from cenote.kernels import backend
from cenote.kernels.backend import DTYPE_CODES


@dataclass(frozen=True, slots=True)
class Matches:
    """For N documents and Q query rows: which document row matched best, and how well."""

    scores: Tensor  # float32 [N]
    rows: Tensor  # int32 [N, Q], counted within the document
    similarities: Tensor  # float32 [N, Q]


def maxsim(query: Tensor, documents: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Scores float32 `[N]` of query rows `[Q, d]` against N packed documents `[rows, d]`.

    `cu_seqlens` (int32 `[N + 1]`) says where each document's rows lie; a document without rows
    scores 0. Sums and comparisons are in float32.
    """
    module = backend.native()
    if module is None or not _is_native(documents):
        return maxsim_torch(query, documents, cu_seqlens)
    scores = torch.empty(cu_seqlens.shape[0] - 1, dtype=torch.float32)
    _native_maxsim(query, documents, cu_seqlens, scores)
    return scores


def maxsim_torch(query: Tensor, documents: Tensor, cu_seqlens: Tensor) -> Tensor:
    """The oracle of `maxsim`."""
    similarities = documents.float() @ query.float().T  # [rows, Q]
    owner = _owners(cu_seqlens, documents.shape[0]).unsqueeze(1).expand_as(similarities)
    best = similarities.new_zeros((cu_seqlens.shape[0] - 1, query.shape[0]))
    return best.scatter_reduce_(0, owner, similarities, "amax", include_self=False).sum(dim=1)


def best_matches(query: Tensor, documents: Tensor, cu_seqlens: Tensor) -> Matches:
    """As `maxsim`, and the match of every query row; a document without rows has rows -1."""
    module = backend.native()
    if module is None or not _is_native(documents):
        return best_matches_torch(query, documents, cu_seqlens)
    count = cu_seqlens.shape[0] - 1
    matches = Matches(
        scores=torch.empty(count, dtype=torch.float32),
        rows=torch.empty((count, query.shape[0]), dtype=torch.int32),
        similarities=torch.empty((count, query.shape[0]), dtype=torch.float32),
    )
    _native_maxsim(query, documents, cu_seqlens, matches.scores, matches)
    return matches


def best_matches_torch(query: Tensor, documents: Tensor, cu_seqlens: Tensor) -> Matches:
    """The oracle of `best_matches`."""
    similarities = documents.float() @ query.float().T
    count = cu_seqlens.shape[0] - 1
    rows = torch.full((count, query.shape[0]), -1, dtype=torch.int32, device=query.device)
    best = similarities.new_zeros(rows.shape)
    bounds = cu_seqlens.tolist()
    for index, (start, end) in enumerate(pairwise(bounds)):
        if end > start:
            best[index], found = similarities[start:end].max(dim=0)
            rows[index] = found.int()
    return Matches(best.sum(dim=1), rows, best)


def _is_native(documents: Tensor) -> bool:
    """The C++ side takes bfloat16 rows in pairs of numbers."""
    if documents.dtype == torch.bfloat16:
        return documents.shape[1] % 2 == 0
    return documents.dtype in DTYPE_CODES


def _owners(cu_seqlens: Tensor, total: int) -> Tensor:
    """int64 `[rows]`: which document each row belongs to."""
    numbers = torch.arange(cu_seqlens.shape[0] - 1, device=cu_seqlens.device)
    return numbers.repeat_interleave(cu_seqlens.diff(), output_size=total)


def _native_maxsim(
    query: Tensor,
    documents: Tensor,
    cu_seqlens: Tensor,
    scores: Tensor,
    matches: Matches | None = None,
) -> None:
    query = query.to(documents.dtype).contiguous()
    documents = documents.contiguous()
    cu_query = torch.tensor([0, query.shape[0]], dtype=torch.int32)
    ranges = torch.tensor([0, scores.shape[0]], dtype=torch.int32)
    backend.compiled().maxsim(
        query.data_ptr(),
        cu_query.data_ptr(),
        1,
        documents.data_ptr(),
        cu_seqlens.data_ptr(),
        ranges.data_ptr(),
        query.shape[1],
        DTYPE_CODES[documents.dtype],
        scores.data_ptr(),
        best_row=0 if matches is None else matches.rows.data_ptr(),
        best_score=0 if matches is None else matches.similarities.data_ptr(),
    )
