"""The input of an encoder: the sum of up to three table rows per token, normed.

It knows nothing of how positions are counted: a table that starts at an offset is sliced at load.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cenote.errors import InvalidRequest
from cenote.kernels import backend
from cenote.kernels.backend import DTYPE_CODES
from cenote.kernels.norm import NormWeight, norm_torch


@dataclass(frozen=True, slots=True)
class EmbeddingTables:
    """Tables `[rows, hidden]` of one dtype; the words are multiplied by `scale`."""

    words: Tensor
    positions: Tensor | None = None
    types: Tensor | None = None
    norm: NormWeight | None = None
    scale: float = 1.0


def embed(
    ids: Tensor, positions: Tensor, type_ids: Tensor | None, tables: EmbeddingTables
) -> Tensor:
    """norm(scale · words[id] + positions[position] + types[type]) → float32 `[T, hidden]`.

    All ids are int32 `[T]`; `type_ids` None means type 0 throughout. An index outside its table
    raises InvalidRequest and reads nothing.
    """
    module = backend.native()
    try:
        if module is None or tables.words.dtype not in DTYPE_CODES:
            return embed_torch(ids, positions, type_ids, tables)
        return _embed_native(ids, positions, type_ids, tables)
    except IndexError as error:
        raise InvalidRequest(
            f"A token id or position is outside the model's table: {error}."
        ) from error


def _embed_native(
    ids: Tensor, positions: Tensor, type_ids: Tensor | None, tables: EmbeddingTables
) -> Tensor:
    words, table, types, norm = tables.words, tables.positions, tables.types, tables.norm
    out = torch.empty((ids.shape[0], words.shape[1]), dtype=torch.float32)
    backend.compiled().embedding(
        ids.data_ptr(),
        ids.shape[0],
        words.shape[1],
        DTYPE_CODES[words.dtype],
        words.data_ptr(),
        words.shape[0],
        position_table=0 if table is None else table.data_ptr(),
        max_positions=0 if table is None else table.shape[0],
        positions=positions.data_ptr(),
        type_table=0 if types is None else types.data_ptr(),
        type_count=0 if types is None else types.shape[0],
        types=0 if type_ids is None else type_ids.data_ptr(),
        scale=tables.scale,
        norm="none" if norm is None else norm.kind,
        norm_weight=0 if norm is None else norm.weight.data_ptr(),
        norm_bias=0 if norm is None or norm.bias is None else norm.bias.data_ptr(),
        eps=0.0 if norm is None else norm.eps,
        out_f32=out.data_ptr(),
    )
    return out


def embed_torch(
    ids: Tensor, positions: Tensor, type_ids: Tensor | None, tables: EmbeddingTables
) -> Tensor:
    """The oracle of `embed`. On a GPU the tables' bounds are the caller's to keep."""
    hidden = F.embedding(ids, tables.words).float()
    if tables.scale != 1.0:
        hidden = hidden * tables.scale
    if tables.types is not None:
        first = tables.types[0]
        hidden = hidden + (first if type_ids is None else F.embedding(type_ids, tables.types))
    if tables.positions is not None:
        hidden = hidden + F.embedding(positions, tables.positions)
    return hidden if tables.norm is None else norm_torch(hidden, tables.norm)
