"""From a scheduled step to the packed batch that a model takes, and a batch's parts.

Everything is concatenated in NumPy and goes to the device in one copy. It knows no tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cenote.errors import InvalidRequest
from cenote.layers.kv import KVView
from cenote.layers.packed import PackedBatch, ReadRows
from cenote.step import ScheduledRequest

# Position of a prompt's first token of type 1, in `PoolingParams.extra_kwargs`.
TOKEN_TYPES = "compressed_token_type_ids"


def make_batch(
    requests: Sequence[ScheduledRequest],
    device: torch.device,
    kv: KVView | None = None,
    read: ReadRows | None = None,
) -> PackedBatch:
    """The parts of prompts that run in this step, one sequence each, in the given order.

    `read` says which of their rows are; None: all.

    Raises:
        InvalidRequest: a prompt's compressed token type ids are not a position in it.
    """
    seq_lens = [request.num_tokens for request in requests]
    total = sum(seq_lens)
    cu_seqlens = np.zeros(len(seq_lens) + 1, dtype=np.int32)
    np.cumsum(seq_lens, out=cu_seqlens[1:])
    ids = np.fromiter(
        chain.from_iterable(_part(request) for request in requests), dtype=np.int32, count=total
    )
    starts = np.array([request.start for request in requests], dtype=np.int32)
    positions = np.arange(total, dtype=np.int32) - np.repeat(cu_seqlens[:-1] - starts, seq_lens)
    types = _token_types(requests, positions, seq_lens)
    rows = [ids, positions] if types is None else [ids, positions, types]
    packed = torch.from_numpy(np.stack(rows)).to(device)
    mask = _key_mask(requests, positions, seq_lens)
    return PackedBatch(
        input_ids=packed[0],
        positions=packed[1],
        cu_seqlens=torch.from_numpy(cu_seqlens).to(device),
        seq_lens=seq_lens,
        token_type_ids=None if types is None else packed[2],
        key_mask=None if mask is None else torch.from_numpy(mask).to(device),
        adapters=_adapters(requests),
        kv=kv,
        read=read,
    )


def _adapters(requests: Sequence[ScheduledRequest]) -> list[str | None] | None:
    if all(request.adapter is None for request in requests):
        return None
    return [request.adapter for request in requests]


def _part(request: ScheduledRequest) -> Sequence[int]:
    if request.num_tokens == len(request.token_ids):
        return request.token_ids
    return request.token_ids[request.start : request.start + request.num_tokens]


def _token_types(
    requests: Sequence[ScheduledRequest], positions: NDArray[np.int32], seq_lens: list[int]
) -> NDArray[np.int32] | None:
    """Type 1 from the given position on; a prompt without one has type 0 throughout."""
    given = [request.params.extra_kwargs.get(TOKEN_TYPES) for request in requests]
    if all(first is None for first in given):
        return None
    firsts = []
    for request, first in zip(requests, given, strict=True):
        length = len(request.token_ids)
        if first is None:
            first = length
        elif not isinstance(first, int) or not 0 <= first <= length:
            raise InvalidRequest(
                f"{TOKEN_TYPES} must be a position from 0 to {length}, not {first!r}.",
                param=TOKEN_TYPES,
            )
        firsts.append(first)
    return (positions >= np.repeat(firsts, seq_lens)).astype(np.int32)


def _key_mask(
    requests: Sequence[ScheduledRequest], positions: NDArray[np.int32], seq_lens: list[int]
) -> NDArray[np.uint8] | None:
    """0 for tokens that no token attends to, from `attended_tokens` on."""
    if all(request.params.attended_tokens is None for request in requests):
        return None
    attended = [
        len(request.token_ids)
        if request.params.attended_tokens is None
        else request.params.attended_tokens
        for request in requests
    ]
    return (positions < np.repeat(attended, seq_lens)).astype(np.uint8)


def read_batch(batch: PackedBatch) -> PackedBatch:
    """The batch of those rows alone that are read: what the model's hidden states are of."""
    read = batch.read
    if read is None:
        return batch
    return PackedBatch(
        input_ids=batch.input_ids[read.rows],
        positions=batch.positions[read.rows],
        cu_seqlens=read.cu_seqlens,
        seq_lens=read.seq_lens,
        adapters=batch.adapters,
    )


def take_sequences(
    hidden: Tensor, batch: PackedBatch, first: int, end: int
) -> tuple[Tensor, PackedBatch]:
    """Sequences `[first, end)` of a batch and their rows of `hidden` `[T, H]`, as views."""
    if first == 0 and end == len(batch.seq_lens):
        return hidden, batch
    begin = sum(batch.seq_lens[:first])
    rows = slice(begin, begin + sum(batch.seq_lens[first:end]))
    part = PackedBatch(
        input_ids=batch.input_ids[rows],
        positions=batch.positions[rows],
        cu_seqlens=batch.cu_seqlens[first : end + 1] - begin,
        seq_lens=batch.seq_lens[first:end],
        token_type_ids=None if batch.token_type_ids is None else batch.token_type_ids[rows],
        key_mask=None if batch.key_mask is None else batch.key_mask[rows],
        adapters=None if batch.adapters is None else batch.adapters[first:end],
    )
    return hidden[rows], part
