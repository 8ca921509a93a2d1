"""The memory of what a causal model keeps of its tokens, and one step's window on it.

It knows blocks by number; whose they are is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cenote.errors import ModelLoadError
from cenote.layers.kv import KeyRows, KVShape, KVView, Neighbours
from cenote.runner.device import free_memory
from cenote.step import KVSpace, ScheduledRequest

# Where `kv_cache_bytes` is 0: this share of the memory that is free once the model is loaded, but
# no more than so many bytes and so many tokens.
_SHARE = {"cpu": 0.25, "cuda": 0.5}
_MOST_BYTES = {"cpu": 4 << 30, "cuda": 64 << 30}
_MOST_TOKENS = 1 << 18


def num_blocks(
    configured: int, block_size: int, shape: KVShape, dtype: torch.dtype, device: torch.device
) -> int:
    """How many blocks fit in `configured` bytes; 0 bytes: in what is chosen for the device.

    Raises:
        ModelLoadError: not even one does.
    """
    token = shape.numbers * dtype.itemsize
    if configured:
        found = configured // (token * block_size)
    else:
        share = int(free_memory(device) * _SHARE[device.type])
        size = min(share, _MOST_BYTES[device.type], _MOST_TOKENS * token)
        found = size // (token * block_size)
    if found < 1:
        raise ModelLoadError(
            f"kv_cache_bytes={configured or size} is less than one block of {block_size} tokens, "
            f"which takes {token * block_size} bytes for this model.",
            param="kv_cache_bytes",
        )
    return found


class KVMemory:
    """Keys and values `[layers, slots, 2 · size]`, and inputs of convolutions `[convs, slots, …]`.

    Block b is the slots from b · block_size on.
    """

    def __init__(
        self, space: KVSpace, shape: KVShape, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.space = space
        self.reach = shape.reach
        slots = space.num_blocks * space.block_size
        # Never read before it is written, so it needn't be cleared: a CPU then gives no memory to
        # what is not used yet.
        size = (shape.layers, slots, 2 * shape.size)
        self.entries = torch.empty(size, dtype=dtype, device=device)
        size = (shape.convs, slots, shape.conv_size)
        self.inputs = torch.empty(size, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        return int(self.entries.nbytes + self.inputs.nbytes)

    def view(self, requests: Sequence[ScheduledRequest]) -> KVView | None:
        """The window of a step on its requests' blocks, in their order; None if it keeps nothing.

        That is where no prompt has another part and no later prompt could use what is kept.
        """
        has_context = any(request.start for request in requests)
        goes_on = any(not request.is_last_chunk for request in requests)
        if not (has_context or goes_on or self.space.prefix_caching):
            return None
        device = self.entries.device
        slots = [self._slots(request) for request in requests]
        written = np.concatenate(
            [of[request.start :] for of, request in zip(slots, requests, strict=True)]
        )
        read, neighbours, joined = None, None, None
        if has_context:
            lengths = [len(of) for of in slots]
            cu_seqlens = np.cumsum([0, *lengths], dtype=np.int32)
            read = KeyRows(
                torch.from_numpy(np.concatenate(slots)).to(device),
                torch.from_numpy(cu_seqlens).to(device),
                lengths,
            )
            neighbours = self._neighbours(requests, slots) if self.reach else None
            joined = self._joined(requests)
        written_at = torch.from_numpy(written).to(device)
        return KVView(self.entries, self.inputs, written_at, read, neighbours, joined)

    def _joined(self, requests: Sequence[ScheduledRequest]) -> torch.Tensor | None:
        """See `KVView`: blocks of a prefix may be filled by the step that reads them."""
        size = self.space.block_size
        writer = {
            block: at
            for at, request in enumerate(requests)
            for block in (request.block_ids or [])[request.start // size :]
        }
        joined = np.zeros(len(requests), dtype=np.uint8)
        for at, request in enumerate(requests):
            for block in (request.block_ids or [])[: request.start // size]:
                other = writer.get(block, at)
                joined[min(at, other) + 1 : max(at, other) + 1] = 1
        return torch.from_numpy(joined) if joined.any() else None

    def _neighbours(
        self, requests: Sequence[ScheduledRequest], slots: Sequence[NDArray[np.int64]]
    ) -> Neighbours:
        """Of the first tokens of parts that begin within a prompt."""
        found: list[tuple[int, int, int]] = []
        first = 0
        for request, own in zip(requests, slots, strict=True):
            start = request.start
            for back in range(1, self.reach + 1):
                places = range(max(back - start, 0), min(back, request.num_tokens))
                found += [(first + at, back, int(own[start + at - back])) for at in places]
            first += request.num_tokens
        device = self.entries.device
        rows, backs, where = torch.tensor(found, dtype=torch.int64, device=device).view(-1, 3).t()
        counts = [np.arange(request.num_tokens, dtype=np.int32) for request in requests]
        places_of = torch.from_numpy(np.concatenate(counts)).to(device)
        return Neighbours(rows, backs, where, places_of)

    def _slots(self, request: ScheduledRequest) -> NDArray[np.int64]:
        """Where the prompt's tokens lie, up to the end of this part."""
        size = self.space.block_size
        firsts = np.asarray(request.block_ids, dtype=np.int64) * size
        slots = (firsts[:, None] + np.arange(size)).reshape(-1)
        return slots[: request.start + request.num_tokens]
