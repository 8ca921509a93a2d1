"""One way to compare a model with its reference library: on the same folder, alone and together.

`Served` is our model and poolers without an engine; `assert_matches_reference` runs a task on token
ids three ways (one batch, the reverse order, each alone) and holds all of them to the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.models.load import load_model
from cenote.params import PoolingParams, Task
from cenote.poolers.base import Pooled, Pooler
from cenote.poolers.factory import build_poolers
from cenote.processors.tokenizer import Tokenizer
from cenote.runner.input_batch import read_batch
from cenote.runner.row_readers import RowReaders
from cenote.step import ScheduledRequest

CPU = torch.device("cpu")

TEXTS = (
    "a",
    "how do I reset my password?",
    "The quick brown fox jumps over the lazy dog. " * 4,
    "東京は日本の首都です。 Москва — столица России. القاهرة عاصمة مصر",
    "emoji 😀👩‍👩‍👧 and flags 🇩🇪 mixed with text",
    "control \x00\x07\x1b characters\r\n\tand\u200bzero width",
    "Straße naïve café ﬁne Ångström",
)


@dataclass
class Served:
    """A model and its poolers, loaded as the engine loads them."""

    config: ModelConfig
    model: PoolingModel
    poolers: dict[Task, Pooler]
    tokenizer: Tokenizer

    def encode(self, texts: Sequence[str], limit: int = 128) -> list[list[int]]:
        """Token ids of each text, cut to `limit`."""
        return [item.ids for item in self.tokenizer.encode(list(texts), max_tokens=limit)]

    def run(
        self,
        task: Task,
        ids: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None = None,
        params: PoolingParams | None = None,
    ) -> list[Pooled]:
        """One batch of token ids, all with the same parameters. As in an engine's step, the last
        layer makes only the rows that are read."""
        own = PoolingParams(task=task) if params is None else params
        requests = [ScheduledRequest("", list(given), own, 0, len(given)) for given in ids]
        read = RowReaders(self.poolers, ()).rows(requests, CPU)
        batch = replace(pack(ids, types), read=read)
        with torch.inference_mode():
            return self.poolers[task](self.model(batch), read_batch(batch), [own] * len(ids))


def serve(
    folder: Path,
    kernels: Any,
    dtype: torch.dtype = torch.float32,
    **settings: Any,
) -> Served:
    """Loads a folder with the given kernels, on one thread: test machines have few cores."""
    engine = EngineConfig(kernels=kernels, threads=1, **settings)
    config = load_model_config(folder, name="tested", revision="", engine=engine)
    model = load_model(config, dtype=dtype, device=CPU, engine=engine)
    poolers = build_poolers(config, model, CPU)
    return Served(config, model, poolers, Tokenizer(config.transformer_path, config))


def pack(ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> PackedBatch:
    """Token ids, one after the other."""
    lengths = [len(sequence) for sequence in ids]
    flat_types = None if types is None else _flat(types)
    return PackedBatch(
        input_ids=_flat(ids),
        positions=_flat([range(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        seq_lens=lengths,
        token_type_ids=flat_types,
    )


def _flat(sequences: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([item for part in sequences for item in part], dtype=torch.int32)


@dataclass(frozen=True)
class Tolerance:
    """How far each number may be from the reference's, and how far the angle of a row, or both.

    Above 1 the absolute bound grows with the reference's largest number: logits have no unit.
    """

    absolute: float = 1e-5
    cosine: float = 0.9995

    def check(self, ours: Tensor, theirs: Tensor, what: str) -> None:
        assert ours.shape == theirs.shape, what
        if not theirs.numel():
            return
        difference = (ours - theirs).abs().max().item() / max(1.0, theirs.abs().max().item())
        assert difference <= self.absolute, f"{what}: differs by {difference:.2e}"
        cosine = torch.cosine_similarity(ours, theirs, dim=-1).min().item()
        assert cosine >= self.cosine, f"{what}: cosine {cosine:.6f}"


FLOAT32 = Tolerance()
BFLOAT16 = Tolerance(absolute=1e-2)


def assert_matches_reference(
    served: Served,
    task: Task,
    ids: Sequence[Sequence[int]],
    expected: Sequence[Tensor],
    *,
    types: Sequence[Sequence[int]] | None = None,
    params: PoolingParams | None = None,
    tolerance: Tolerance = FLOAT32,
) -> None:
    """The task's results against `expected`, and against themselves in other batches.

    Sparse vectors are compared as dense ones, as long as the vocabulary.
    """

    def run(ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None) -> list[Tensor]:
        pooled = served.run(task, ids, types, params)
        if task == "sparse_embed":
            return [_dense(item, served.config.vocab_size) for item in pooled]
        return [item.data for item in pooled]

    together = run(ids, types)
    turned = run(ids[::-1], None if types is None else types[::-1])[::-1]
    for index, theirs in enumerate(expected):
        (alone,) = run([ids[index]], None if types is None else [types[index]])
        what = f"{task} of sequence {index} ({len(ids[index])} tokens)"
        tolerance.check(together[index], theirs, what)
        tolerance.check(alone, theirs, f"{what}, alone")
        tolerance.check(alone, together[index], f"{what}, alone against in a batch")
        tolerance.check(turned[index], together[index], f"{what}, in another order")


def _dense(item: Pooled, size: int) -> Tensor:
    """A sparse vector with its zeros; it has none itself, and its heaviest entry comes first."""
    assert item.indices is not None
    assert (item.data > 0).all()
    assert (item.data.diff() <= 0).all()
    return torch.zeros(size).index_put((item.indices.long(),), item.data)
