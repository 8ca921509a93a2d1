"""Which rows of a step's pack its poolers read, so that a model's last layer makes no others.

It knows no heads: a pooler says itself what it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np
import torch

from cenote.layers.packed import ReadRows
from cenote.params import Task
from cenote.poolers.base import Pooler, SelectivePooler
from cenote.step import ScheduledRequest


class RowReaders:
    """A model's poolers that may leave rows out.

    Of a prompt that runs in parts only those of `last_row_tasks` do: for others the parts' rows are
    remembered.
    """

    def __init__(self, poolers: Mapping[Task, Pooler], last_row_tasks: Collection[Task]) -> None:
        self._last_row_tasks = last_row_tasks
        self._selective = {
            task: pooler for task, pooler in poolers.items() if isinstance(pooler, SelectivePooler)
        }

    def rows(self, requests: Sequence[ScheduledRequest], device: torch.device) -> ReadRows | None:
        """The rows that are read of a batch of these requests, in this order; None: all."""
        totals = [request.num_tokens for request in requests]
        read = [self._read(request) for request in requests]
        counts = [len(places) for places in read]
        if counts == totals:
            return None
        total = sum(counts)
        starts = np.array([0, *accumulate(totals[:-1])], dtype=np.int64)
        rows = np.fromiter(chain.from_iterable(read), dtype=np.int64, count=total)
        rows += np.repeat(starts, counts)
        ends = np.array([0, *accumulate(counts)], dtype=np.int32)
        return ReadRows(
            rows=torch.from_numpy(rows).to(device),
            cu_seqlens=torch.from_numpy(ends).to(device),
            seq_lens=counts,
            trailing=all(map(_is_end, read, totals)),
        )

    def _read(self, request: ScheduledRequest) -> Sequence[int]:
        """The places, in the request's part of its prompt, of the rows that are read."""
        places = range(request.num_tokens)
        params, start = request.params, request.start
        pooler = None if params.task is None else self._selective.get(params.task)
        is_whole = request.num_tokens == len(request.token_ids)
        if pooler is None or params.also:
            return places
        if not is_whole and params.task not in self._last_row_tasks:
            return places
        found = pooler.reads(request.token_ids, params)
        if found is None or is_whole:
            return places if found is None else found
        return [at - start for at in found if at - start in places]


def _is_end(places: Sequence[int], total: int) -> bool:
    """Whether ascending places are the last ones of `total`, or none."""
    return not places or places[0] + len(places) == total
