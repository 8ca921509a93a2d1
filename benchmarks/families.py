"""Our encoders by family: the share of the product instructions' peak that each one reaches.

    python -m benchmarks.families [--families BERT ModernBERT] [--dtypes bfloat16 int8] [--layers 3]

Base size, few layers, random weights, token ids in: a family whose share is well below BERT's has
something that isn't fused, or more of what isn't a product with weights (attention on long texts).
With --threads 1 the clock is the thread's own processor time, which other programs can't stretch.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import limits
from benchmarks.encoders import FAMILIES
from benchmarks.harness import print_json, print_table
from cenote.cli.workload import LENGTHS
from cenote.config.engine import EngineConfig
from cenote.config.model import load_model_config
from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.models.load import load_model

# Tokens in a pack: from here on products gain nothing.
TOKENS = 2048
# Enough rows for random ids to miss the caches, as a real table's do.
VOCABULARY = 30522


def pack(workload: Any, tokens: int = TOKENS) -> PackedBatch:
    """Random ids in sequences of a workload's lengths, about `tokens` in all."""
    draw = random.Random(0)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        lengths.append(round(LENGTHS[workload](draw)))
    ids = [draw.randrange(5, VOCABULARY) for _ in range(sum(lengths))]
    return PackedBatch(
        input_ids=torch.tensor(ids, dtype=torch.int32),
        positions=torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths]),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        seq_lens=lengths,
    )


def peak(dtype: str) -> float:
    """The best of some windows that are short enough for no other program to come between."""
    return max(limits.peak(dtype, 0.002) for _ in range(5))


@dataclass
class Family:
    """One family's model in one number format."""

    name: str
    dtype: str
    model: PoolingModel
    shapes: limits.Shapes

    @classmethod
    def load(cls, name: str, dtype: str, folder: Path, threads: int) -> Family:
        int8 = dtype == "int8"
        engine = EngineConfig(threads=threads, quantization="int8" if int8 else "none")
        config = load_model_config(folder, name=name, revision="", engine=engine)
        kind = torch.bfloat16 if int8 else getattr(torch, dtype)
        model = load_model(config, dtype=kind, device=torch.device("cpu"), engine=engine)
        return cls(name, dtype, model, limits.Shapes.of(folder))

    def seconds(self, batch: PackedBatch, clock: Any) -> float:
        began: float = clock()
        self.model(batch)
        return float(clock()) - began


def measure(
    families: list[Family], batch: PackedBatch, rounds: int, threads: int
) -> list[dict[str, Any]]:
    """A row for each family; all of them take turns, each beside a measurement of the peak."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    taken: dict[int, list[float]] = {at: [] for at in range(len(families))}
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for at in list(taken)[:: 1 if number % 2 else -1]:
            family = families[at]
            best[family.dtype] = max(best.get(family.dtype, 0.0), peak(family.dtype))
            seconds = family.seconds(batch, clock)
            if number:  # the first round warms up
                taken[at].append(seconds)
    rows = []
    for at, family in enumerate(families):
        seconds = statistics.median(taken[at])
        rate = batch.num_tokens / seconds
        share = rate * family.shapes.flops_per_token / best[family.dtype]
        rows.append(
            {
                "name": family.name,
                "dtype": family.dtype,
                "tokens_per_s": round(rate),
                "of_peak": f"{share:.0%}",
            }
        )
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "int8"])
    parser.add_argument("--workload", nargs="+", default=["passages", "long"], choices=LENGTHS)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


@torch.inference_mode()
def main() -> None:
    args = arguments()
    loaded = []
    with tempfile.TemporaryDirectory() as made:
        for name in args.families:
            encoder, folder = FAMILIES[name], Path(made, name)
            # Their own padding, start and end ids lie beyond this vocabulary.
            encoder.save(
                folder,
                vocab_size=VOCABULARY,
                **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 1),
                **{encoder.layers: args.layers},
            )
            loaded += [Family.load(name, dtype, folder, args.threads) for dtype in args.dtypes]
    tables = {
        name: measure(loaded, pack(name), args.rounds, args.threads) for name in args.workload
    }
    for title, rows in tables.items():
        print_table(f"Families, {title}, {args.threads} threads", rows)
    print_json("families", tables)


if __name__ == "__main__":
    main()
