"""What is remembered of prompts that run in parts, until their last part comes.

A pooler that makes its result of one pooled row remembers that row's running state; for any other
the rows themselves are kept. It knows no scheduling: who is preempted is removed and starts again.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cenote.layers.packed import PackedBatch
from cenote.poolers.base import Pooled, Pooler, RowPooler
from cenote.poolers.running import RunningPool
from cenote.step import ScheduledRequest


def reads_last_row(pooler: Pooler) -> bool:
    """Whether a result is made of a prompt's last row alone: then nothing is remembered."""
    return isinstance(pooler, RowPooler) and set(pooler.modes) == {"last"}


class PartialPrompts:
    """States by request id, one for each of the request's poolers."""

    def __init__(self) -> None:
        self._states: dict[str, list[RunningPool | list[Tensor]]] = {}

    def __len__(self) -> int:
        return len(self._states)

    def add(
        self, request: ScheduledRequest, rows: Tensor, poolers: Iterable[Pooler]
    ) -> list[Pooled] | None:
        """Takes in the rows `[n, H]` of a part; after the last part, the result of each pooler."""
        poolers = list(poolers)
        states = self._states.get(request.request_id)
        if states is None:
            states = [_new_state(pooler, request) for pooler in poolers]
            self._states[request.request_id] = states
        for pooler, state in zip(poolers, states, strict=True):
            if isinstance(state, RunningPool):
                assert isinstance(pooler, RowPooler), "states are made by _new_state"
                state.add(pooler.rows(rows), request.start)
            else:
                state.append(rows.clone())
        if not request.is_last_chunk:
            return None
        del self._states[request.request_id]
        return [_finish(*of, request) for of in zip(poolers, states, strict=True)]

    def remove(self, request_id: str) -> None:
        """Forgets a request that ended or starts again."""
        self._states.pop(request_id, None)

    def clear(self) -> None:
        """Forgets all."""
        self._states.clear()


def _new_state(pooler: Pooler, request: ScheduledRequest) -> RunningPool | list[Tensor]:
    if isinstance(pooler, RowPooler):
        return RunningPool(pooler.modes, len(request.token_ids), request.params.skip_tokens)
    return []


def _finish(pooler: Pooler, state: RunningPool | list[Tensor], request: ScheduledRequest) -> Pooled:
    if isinstance(state, RunningPool):
        assert isinstance(pooler, RowPooler), "states are made by _new_state"
        return pooler.finish(state.result().unsqueeze(0), [request.params])[0]
    rows = torch.cat(state)
    return pooler(rows, _whole(request, rows.device), [request.params])[0]


def _whole(request: ScheduledRequest, device: torch.device) -> PackedBatch:
    """The whole prompt as a batch of one."""
    length = len(request.token_ids)
    return PackedBatch(
        input_ids=torch.tensor(request.token_ids, dtype=torch.int32, device=device),
        positions=torch.arange(length, dtype=torch.int32, device=device),
        cu_seqlens=torch.tensor([0, length], dtype=torch.int32, device=device),
        seq_lens=[length],
    )
