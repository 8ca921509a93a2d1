"""A last layer that makes only the rows that are read, against one that makes all of them.

python -m benchmarks.read_rows [--dtypes bfloat16 float32] [--rounds 9]

Token ids in, on one thread, whose processor time (`cpu_ratio`) other programs can't stretch:
passages, in steps of a few thousand tokens or each in a step of its own. The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from benchmarks import decoder, models
from benchmarks.encoders import FAMILIES
from benchmarks.harness import compare, finish, interleave, print_table
from benchmarks.work import Array
from benchmarks.workloads import rerank, texts
from cenote.config.engine import EngineConfig
from cenote.config.model import load_model_config
from cenote.loader.hub import resolve
from cenote.models.base import PoolingModel
from cenote.models.load import load_model
from cenote.params import PoolingParams
from cenote.poolers.base import Pooler
from cenote.poolers.factory import build_poolers
from cenote.runner.input_batch import make_batch, read_batch
from cenote.runner.row_readers import RowReaders
from cenote.step import ScheduledRequest

CPU = torch.device("cpu")
LONGEST = 512
LEAST = {"float32": 1 - 1e-5, "bfloat16": 1 - 1e-2}

Steps = Sequence[Sequence[ScheduledRequest]]


def _cls_embedder(folder: Path) -> Path:
    FAMILIES["BERT"].save(folder)
    return folder


@dataclass(frozen=True)
class Case:
    """How a model is made and pooled, and what it is asked for: `params` of each text."""

    make: Callable[[Path], object]
    params: PoolingParams
    pooling: str | None = None


CASES = {
    "cross-encoder": Case(models.cross_encoder, PoolingParams("classify")),
    "cls": Case(_cls_embedder, PoolingParams("embed"), "cls"),
    "decoder": Case(partial(decoder.save_model, "small"), PoolingParams("embed"), "last"),
}


class Rows:
    """A model and its pooler. `readers` say which rows are read; None: all."""

    def __init__(
        self, name: str, model: PoolingModel, pooler: Pooler, readers: RowReaders | None
    ) -> None:
        self.name, self.model, self.pooler, self.readers = name, model, pooler, readers

    @torch.inference_mode()
    def run(self, work: Steps) -> Array:
        """A row for each request."""
        return np.stack([row for step in work for row in self._step(step)])

    def _step(self, step: Sequence[ScheduledRequest]) -> Iterator[Array]:
        read = None if self.readers is None else self.readers.rows(step, CPU)
        batch = make_batch(step, CPU, read=read)
        params = [request.params for request in step]
        for one in self.pooler(self.model(batch), read_batch(batch), params):
            yield one.data.numpy()

    def close(self) -> None:
        """Nothing to stop."""


def candidates(case: Case, folder: Path, dtype: str) -> list[Rows]:
    """The same model twice: with all rows, and with those that are read."""
    engine = EngineConfig(threads=1, pooling=case.pooling)
    config = load_model_config(folder, name="made", revision="", engine=engine)
    model = load_model(config, dtype=getattr(torch, dtype), device=CPU, engine=engine)
    poolers = build_poolers(config, model, CPU)
    assert case.params.task is not None, "every case has a task"
    pooler = poolers[case.params.task]
    readers = RowReaders(poolers, ())
    return [Rows("all rows", model, pooler, None), Rows("rows read", model, pooler, readers)]


def prompts(name: str, count: int) -> list[list[int]]:
    """Token ids of passages, for the cross-encoder each beside a query, by MiniLM's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(resolve("minilm", None).folder)
    documents = texts("passages", count)
    if name == "cross-encoder":
        inputs: tuple[list[str], ...] = ([rerank(0).query] * count, documents)
    else:
        inputs = (documents,)
    ids: list[list[int]] = tokenizer(*inputs, truncation=True, max_length=LONGEST)["input_ids"]
    return ids


def steps(ids: Sequence[list[int]], params: PoolingParams, tokens: int) -> Steps:
    """Prompts in their order, at least `tokens` tokens in each step but the last."""
    made: list[list[ScheduledRequest]] = [[]]
    for own in ids:
        if sum(len(one.token_ids) for one in made[-1]) >= tokens:
            made.append([])
        made[-1].append(ScheduledRequest("", own, params, 0, len(own)))
    return made


def closeness(left: Array, right: Array) -> float:
    """One less the largest difference, by the largest number."""
    return float(1 - np.abs(left - right).max() / np.abs(right).max())


def measure(name: str, folder: Path, dtype: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A case's table: each way of forming steps."""
    case, ids = CASES[name], prompts(name, args.count)
    pair = candidates(case, folder, dtype)
    rows = []
    for kind, tokens in (("steps", args.tokens), ("alone", 1)):
        measured = interleave(pair, steps(ids, case.params, tokens), args.rounds)
        rows += [
            {"steps": kind, **row}
            for row in compare(
                measured,
                base=pair[0].name,
                tokens=sum(map(len, ids)),
                agree=closeness,
                least=dict.fromkeys(measured.seconds, LEAST[dtype]),
            )
        ]
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16"], choices=LEAST)
    parser.add_argument("--count", type=int, default=48, help="passages")
    parser.add_argument("--tokens", type=int, default=4096, help="in a step")
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    results = {}
    with tempfile.TemporaryDirectory() as made:
        for name in args.cases:
            folder = Path(made, name)
            CASES[name].make(folder)
            for dtype in args.dtypes:
                title = f"{name}, {dtype}"
                results[title] = measure(name, folder, dtype, args)
                print_table(title, results[title])
    finish("read_rows", results)


if __name__ == "__main__":
    main()
