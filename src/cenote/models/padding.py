"""From a packed batch to padded ones, for networks that take no pack.

It knows no network, and not what padding does to one's results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cenote.layers.packed import PackedBatch

# Of two lengths as close as this, padding costs less than a further call.
_CLOSE = 8


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """`n` sequences of a pack, padded on the right to their longest, `L`.

    `rows` are their places in the pack, at padding any valid place; `real` is False at padding.
    """

    ids: Tensor  # [n, L] int64
    rows: Tensor  # [n, L] int64
    real: Tensor  # [n, L] bool
    attended: Tensor  # [n, L] int64, 0 = not attended to as a key
    types: Tensor | None  # [n, L] int64


def padded(batch: PackedBatch, members: Sequence[int], padding_id: int) -> PaddedBatch:
    """The sequences `members` of a batch."""
    device = batch.input_ids.device
    at = torch.tensor(members, device=device)
    lengths = batch.cu_seqlens.diff().long()[at].unsqueeze(1)
    places = torch.arange(max(batch.seq_lens[index] for index in members), device=device)
    real = places < lengths
    rows = batch.cu_seqlens.long()[at].unsqueeze(1) + places.minimum(lengths - 1)
    attended = real.long()
    if batch.key_mask is not None:
        attended *= batch.key_mask[rows].long()
    types = None
    if batch.token_type_ids is not None:
        types = batch.token_type_ids[rows].long() * real
    ids = batch.input_ids[rows].long().where(real, padding_id)
    return PaddedBatch(ids, rows, real, attended, types)


def buckets(lengths: Sequence[int], *, exact: bool) -> list[list[int]]:
    """All sequences, those of about one length together, at most an eighth of a long one padding.

    `exact`: only those of the very same length.
    """
    found: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        slack = 0 if exact else max(longest // 8, _CLOSE)
        if not found or lengths[index] < longest - slack:
            longest = lengths[index]
            found.append([])
        found[-1].append(index)
    return found


def packed(sequences: Sequence[Tensor]) -> PackedBatch:
    """A pack of sequences of token ids, each int32 `[n]`."""
    lengths = [len(ids) for ids in sequences]
    return PackedBatch(
        input_ids=torch.cat(list(sequences)),
        positions=torch.cat([torch.arange(length, dtype=torch.int32) for length in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        seq_lens=lengths,
    )
