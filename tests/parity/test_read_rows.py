"""Rows that are read are what they are where all rows are made: every family, both kernels.

Those of the first, the last and any other tokens, of some sequences none.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from families import save_family
from heads import random_ids, random_types
from reference import pack, serve
from tiny import MakeTiny
from torch import Tensor

from cenote.config.engine import EngineConfig
from cenote.layers.packed import PackedBatch, ReadRows
from cenote.models.registry import ARCHITECTURES
from cenote.params import PoolingParams, Task
from cenote.runner.model_runner import ModelRunner
from cenote.runner.pooling_runner import PoolingRunner
from cenote.step import ScheduledRequest, ScheduledStep

BODIES = [name for name in ARCHITECTURES if name.endswith("Model") or name == "StaticEmbedding"]
LENGTHS = (1, 7, 33, 64, 2, 7)


@pytest.fixture(scope="module", params=BODIES)
def folder(
    request: pytest.FixtureRequest, make_tiny: MakeTiny, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    target = tmp_path_factory.mktemp(request.param)
    return save_family(request.param, make_tiny, target, initializer_range=0.05)[0]


def reading(batch: PackedBatch, places: list[list[int]]) -> PackedBatch:
    """The batch of which these rows of each sequence are read."""
    starts = batch.cu_seqlens.tolist()
    rows = [start + at for start, own in zip(starts, places, strict=False) for at in own]
    counts = [len(own) for own in places]
    pairs = zip(places, batch.seq_lens, strict=True)
    read = ReadRows(
        rows=torch.tensor(rows, dtype=torch.int64),
        cu_seqlens=torch.tensor([0, *counts]).cumsum(0).int(),
        seq_lens=counts,
        trailing=all(own == list(range(n - len(own), n)) for own, n in pairs),
    )
    return replace(batch, read=read)


def choices(lengths: list[int]) -> dict[str, list[list[int]]]:
    """Which rows of each sequence."""
    random = torch.Generator().manual_seed(1)
    some = [(torch.rand(n, generator=random) < 0.5).nonzero().flatten().tolist() for n in lengths]
    return {
        "first": [[0] for _ in lengths],
        "last": [[n - 1] for n in lengths],
        "last two": [[*range(max(n - 2, 0), n)] for n in lengths],
        "some": [[], *some[1:]],
        "none": [[] for _ in lengths],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_those_of_all_rows(folder: Path, kernels: str, dtype: torch.dtype) -> None:
    served = serve(folder, kernels, dtype)
    ids = random_ids(served, LENGTHS)
    batch = pack(ids, random_types(ids) if served.config.token_types > 1 else None)
    with torch.inference_mode():
        every = served.model(batch)
        for name, places in choices(batch.seq_lens).items():
            part = reading(batch, places)
            found, expected = served.model(part), part.take_read(every)
            if kernels == "native" and dtype == torch.bfloat16:
                assert torch.equal(found, expected), name
            bound = (1e-6 if dtype == torch.float32 else 1e-2) * every.abs().max().item()
            torch.testing.assert_close(found, expected, rtol=0, atol=bound)


def test_a_step_of_several_tasks_makes_only_their_rows(
    make_tiny: MakeTiny, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny("BertModel", "wordpiece")
    served = serve(folder, kernels, pooling="cls")
    runner = ModelRunner(
        EngineConfig(
            model=str(folder),
            dtype="float32",
            kernels=kernels,  # type: ignore[arg-type]
            threads=1,
            pooling="cls",
        )
    )
    made: list[int] = []
    pool = PoolingRunner.pool

    def spy(self: PoolingRunner, hidden: Tensor, *rest: Any) -> Any:
        made.append(len(hidden))
        return pool(self, hidden, *rest)

    monkeypatch.setattr(PoolingRunner, "pool", spy)
    ids = random_ids(served, LENGTHS)
    tasks: list[Task] = ["embed", "token_embed"] * (len(ids) // 2)
    requests = [
        ScheduledRequest(str(at), own, PoolingParams(task), 0, len(own))
        for at, (own, task) in enumerate(zip(ids, tasks, strict=True))
    ]
    results = {result.request_id: result for result in runner.execute(ScheduledStep(requests))}
    assert made == [3 + sum(map(len, ids[1::2]))]
    batch = pack(ids)
    with torch.inference_mode():
        hidden = served.model(batch)
        for task in ("embed", "token_embed"):
            whole = served.poolers[task](hidden, batch, [PoolingParams(task)] * len(ids))
            for at in (at for at, own in enumerate(tasks) if own == task):
                found = torch.tensor(results[str(at)].data)
                torch.testing.assert_close(found, whole[at].data, rtol=0, atol=1e-6)
