"""Attention and MaxSim over a pack against what torch offers for texts of unequal lengths.

    python -m benchmarks.attention [--rounds 15] [--tokens 2048] [--threads 2]

Attention: our varlen kernel, a loop of `scaled_dot_product_attention` over the sequences, and one
call for each group of sequences of equal length. MaxSim (32 query rows against 1,000 documents of
about 180 rows): our kernel, one padded bmm, and one packed product with a maximum by segment.
Candidates take turns within a round, so a ratio is the median over rounds of (loop's time / its
time) in the same round. The last line is JSON.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.harness import cosine, finish, print_table
from cenote import _native as native

CODES = {torch.float32: native.F32, torch.bfloat16: native.BF16}
LEAST_COSINE = {torch.float32: 0.999999, torch.bfloat16: 0.999}
HEADS = {32: 12, 64: 12}  # by head size: MiniLM and a base model
Call = Callable[[], Tensor]


def lengths_of(kind: str, tokens: int) -> list[int]:
    """Lengths that add up to about `tokens`: short queries, passages, or all the same."""
    draw = torch.Generator().manual_seed(1)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        if kind == "short":
            lengths.append(int(torch.randint(4, 33, (1,), generator=draw)))
        elif kind == "passages":
            length = 120 * torch.randn(1, generator=draw).mul(0.6).exp().item()
            lengths.append(int(min(512, max(16, length))))
        else:
            lengths.append(int(kind))
    return lengths


def offsets(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


# --- attention -----------------------------------------------------------------------------------


@dataclass
class Attention:
    """One fused projection of a pack, and the ways to attend to it."""

    lengths: list[int]
    heads: int
    head_dim: int
    dtype: torch.dtype
    window: int = -1

    def __post_init__(self) -> None:
        self.cu = offsets(self.lengths)
        width = self.heads * self.head_dim
        rows = torch.randn(sum(self.lengths), 3 * width, generator=torch.Generator().manual_seed(0))
        self.q, self.k, self.v = rows.to(self.dtype).chunk(3, dim=1)
        self.out = torch.empty(rows.shape[0], width, dtype=self.dtype)
        longest = torch.arange(max(self.lengths))
        near = (longest[:, None] - longest).abs() <= self.window
        self.mask = near if self.window >= 0 else None

    def ours(self) -> Tensor:
        out = torch.empty_like(self.out)
        native.attention(
            self.q.data_ptr(),
            self.k.data_ptr(),
            self.v.data_ptr(),
            out.data_ptr(),
            CODES[self.dtype],
            self.q.stride(0),
            self.k.stride(0),
            self.v.stride(0),
            out.stride(0),
            self.cu.data_ptr(),
            len(self.lengths),
            self.heads,
            self.heads,
            self.head_dim,
            self.head_dim**-0.5,
            window_left=self.window,
            window_right=self.window,
        )
        return out

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[n, length, heads · head_dim] → the same."""
        q, k, v = (x.unflatten(2, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))
        mask = None if self.mask is None else self.mask[: q.shape[2], : q.shape[2]]
        return functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)

    def loop(self) -> Tensor:
        out = torch.empty_like(self.out)
        for start, end in pairwise(self.cu.tolist()):
            parts = (x[None, start:end] for x in (self.q, self.k, self.v))
            out[start:end] = self.sdpa(*parts)[0]
        return out

    def grouped(self) -> Tensor:
        out = torch.empty_like(self.out)
        groups: dict[int, list[int]] = {}
        for start, end in pairwise(self.cu.tolist()):
            groups.setdefault(end - start, []).append(start)
        for length, starts in groups.items():
            rows = torch.tensor(starts)[:, None] + torch.arange(length)
            out[rows] = self.sdpa(self.q[rows], self.k[rows], self.v[rows])
        return out


# --- MaxSim --------------------------------------------------------------------------------------


@dataclass
class MaxSim:
    """One query against packed documents, and the ways to score them."""

    documents: int
    dim: int
    dtype: torch.dtype
    query_rows: int = 32

    def __post_init__(self) -> None:
        draw = torch.Generator().manual_seed(2)
        lengths = torch.randint(60, 301, (self.documents,), generator=draw).tolist()
        self.cu = offsets(lengths)
        rows = torch.randn(sum(lengths), self.dim, generator=draw)
        self.rows = functional.normalize(rows, dim=1).to(self.dtype)
        query = torch.randn(self.query_rows, self.dim, generator=draw)
        self.query = functional.normalize(query, dim=1).to(self.dtype)
        self.cu_query = offsets([self.query_rows])
        self.range = torch.tensor([0, self.documents], dtype=torch.int32)
        self.lengths = torch.tensor(lengths)
        self.owner = torch.arange(self.documents).repeat_interleave(self.lengths)
        self.padded = torch.nn.utils.rnn.pad_sequence(self.rows.split(lengths), batch_first=True)
        self.real = torch.arange(self.padded.shape[1]) < self.lengths[:, None]

    def ours(self) -> Tensor:
        scores = torch.empty(self.documents)
        native.maxsim(
            self.query.data_ptr(),
            self.cu_query.data_ptr(),
            1,
            self.rows.data_ptr(),
            self.cu.data_ptr(),
            self.range.data_ptr(),
            self.dim,
            CODES[self.dtype],
            scores.data_ptr(),
        )
        return scores

    def bmm(self) -> Tensor:
        query = self.query.T.expand(self.documents, -1, -1)
        scores = torch.bmm(self.padded, query).masked_fill(~self.real[:, :, None], -torch.inf)
        return scores.amax(1).float().sum(1)

    def packed(self) -> Tensor:
        scores = self.rows @ self.query.T
        best = torch.full((self.documents, self.query_rows), -torch.inf, dtype=self.dtype)
        owner = self.owner[:, None].expand_as(scores)
        return best.scatter_reduce_(0, owner, scores, "amax").float().sum(1)


# --- measuring -----------------------------------------------------------------------------------


def measure(candidates: dict[str, Call], base: str, rounds: int, least: float) -> list[Any]:
    """One row for each candidate; results are compared with the base's."""
    results = {name: call() for name, call in candidates.items()}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 == 0 else -1]:
            began = time.perf_counter()
            candidates[name]()
            seconds[name].append(time.perf_counter() - began)
    rows = []
    for name, times in seconds.items():
        ratios = [b / s for b, s in zip(seconds[base], times, strict=True)]
        ours, theirs = (x.float().reshape(1, -1).numpy() for x in (results[name], results[base]))
        agreement = cosine(ours, theirs)
        rows.append(
            {
                "name": name,
                "median_us": round(statistics.median(times) * 1e6),
                "best_us": round(min(times) * 1e6),
                "ratio": round(statistics.median(ratios), 2),
                "agreement": round(agreement, 6),
                "agrees": agreement >= least,
            }
        )
    return rows


def attention_work(tokens: int, dtype: torch.dtype) -> dict[str, Attention]:
    work = {}
    for head_dim, heads in HEADS.items():
        for kind in ("short", "passages", "512", "2048"):
            work[f"{kind}, head size {head_dim}"] = Attention(
                lengths_of(kind, tokens), heads, head_dim, dtype
            )
        work[f"2048, window 64, head size {head_dim}"] = Attention(
            [2048], heads, head_dim, dtype, window=64
        )
    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtypes", default="bfloat16,float32")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    native.set_num_threads(args.threads)
    print(f"level {native.isa()}, {args.threads} threads, {args.tokens} tokens")
    results: dict[str, list[Any]] = {}
    for dtype in (getattr(torch, name) for name in args.dtypes.split(",")):
        name = str(dtype).removeprefix("torch.")
        for title, work in attention_work(args.tokens, dtype).items():
            calls = {"loop": work.loop, "grouped": work.grouped, "ours": work.ours}
            results[f"{name}: {title}"] = measure(calls, "loop", args.rounds, LEAST_COSINE[dtype])
        scorer = MaxSim(1000, 128, dtype)
        calls = {"padded bmm": scorer.bmm, "packed": scorer.packed, "ours": scorer.ours}
        results[f"{name}: MaxSim"] = measure(calls, "padded bmm", args.rounds, LEAST_COSINE[dtype])
    table = [{"work": title, **row} for title, rows in results.items() for row in rows]
    print_table("Attention and MaxSim", table)
    finish("attention", results)


if __name__ == "__main__":
    main()
