"""MaxSim as it is mostly written: documents padded to the longest, one batched product."""

from __future__ import annotations

import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.work import Array, MaxSimWork


class MaxSim:
    """Padding's scores are put out of reach of the maximum."""

    def __init__(self, name: str, model: str) -> None:
        self.name = name

    def run(self, work: MaxSimWork) -> Array:
        query = torch.from_numpy(work.query)
        documents = [torch.from_numpy(rows) for rows in work.documents]
        for _ in range(work.times):
            padded = pad_sequence(documents, batch_first=True)
            lengths = torch.tensor([len(rows) for rows in documents])
            is_padding = torch.arange(padded.shape[1]) >= lengths[:, None]
            found = torch.matmul(query, padded.transpose(1, 2))
            scores = found.masked_fill(is_padding[:, None], -torch.inf).amax(2).sum(1)
        return scores.numpy()

    def close(self) -> None:
        """Holds nothing."""
