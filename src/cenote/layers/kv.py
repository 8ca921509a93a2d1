"""Paged keys and values as attention sees them. Built for causal models only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class KVView:
    """`block_tables[n]` are sequence n's blocks; `context_lens[n]` its tokens before this chunk."""

    keys: Tensor  # [layers, blocks, block_size, kv_heads, head_dim]
    values: Tensor  # [layers, blocks, block_size, kv_heads, head_dim]
    block_tables: list[list[int]]
    context_lens: list[int]
    block_size: int
