"""Decoders with random weights: passages against transformers, shared prefixes, the pool's price.

python -m benchmarks.decoder --sizes small 0.6b --rounds 5 --dtype bfloat16

Three pieces of work on token ids, so that no tokenizer counts. `passages`: vectors of texts of
mixed lengths; transformers gets them sorted by length, in padded batches. `rerank`: one query and
documents, of whose prompts the first half is the same. `pool`: passages with keys and values kept
in blocks, against the same engine that keeps none and so does one dense forward.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness import compare, cosine, finish, interleave, print_table
from benchmarks.work import Array, Candidate
from cenote.config.engine import EngineConfig
from cenote.engine.core import EngineCore
from cenote.engine.messages import EnginePrompt, EngineRequest
from cenote.params import PoolingParams

# Hidden size, layers, heads, key-value heads, head size, MLP; 0.6b has those of Qwen3-0.6B.
SIZES = {"small": (384, 6, 6, 2, 64, 1024), "0.6b": (1024, 28, 16, 8, 128, 3072)}
VOCABULARY = 32000
LENGTH = 1024
WEIGHT_RANGE = 0.03
# transformers also rounds the sums between layers to bfloat16, which tells in a deep random model.
LEAST = {"float32": 0.99999, "bfloat16": 0.995}

Prompts = Sequence[list[int]]


def save_model(name: str, folder: Path) -> Path:
    """A random decoder of a size, saved to `folder`."""
    hidden, layers, heads, kv_heads, head_dim, intermediate = SIZES[name]
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=intermediate,
        max_position_embeddings=LENGTH,
        initializer_range=WEIGHT_RANGE,
    )
    transformers.LlamaModel(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


class Cenote:
    """Our engine in this process; the prefix cache is empty before every run.

    Without `caching` prompts run whole as well, so that nothing is kept and every step is one dense
    forward.
    """

    def __init__(self, name: str, folder: Path, dtype: str, *, caching: bool) -> None:
        self.name = name
        config = EngineConfig(
            model=str(folder),
            dtype=dtype,  # type: ignore[arg-type]
            enable_prefix_caching=caching,
            enable_chunked_prefill=caching,
            threads=torch.get_num_threads(),
        )
        self.core = EngineCore(config)

    def run(self, work: Prompts) -> Array:
        """Vectors `[prompts, hidden]`."""
        self.core.control("reset_prefix_cache", {})
        params = PoolingParams("embed")
        self.core.add(
            [EngineRequest(str(i), EnginePrompt(ids), params) for i, ids in enumerate(work)]
        )
        rows: dict[str, Array] = {}
        while self.core.has_work:
            rows.update({one.request_id: one.array() for one in self.core.step().outputs})
        return np.stack([rows[str(i)] for i in range(len(work))])

    def close(self) -> None:
        """The engine has no threads of its own here."""


class Transformers:
    """transformers on batches of equal size, sorted by length and padded on the right."""

    def __init__(self, name: str, folder: Path, dtype: str, batch: int = 16) -> None:
        self.name = name
        self.batch = batch
        self.model = transformers.AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model.eval()

    @torch.inference_mode()
    def run(self, work: Prompts) -> Array:
        """Vectors `[prompts, hidden]`."""
        order = sorted(range(len(work)), key=lambda i: len(work[i]))
        rows = [torch.empty(0)] * len(work)
        for at in range(0, len(order), self.batch):
            which = order[at : at + self.batch]
            for i, row in zip(which, self._forward([work[i] for i in which]), strict=True):
                rows[i] = row
        vectors: Array = F.normalize(torch.stack(rows).float(), dim=-1).numpy()
        return vectors

    def _forward(self, prompts: Prompts) -> list[Tensor]:
        lengths = [len(ids) for ids in prompts]
        padded = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
        mask = torch.zeros_like(padded)
        for row, ids in enumerate(prompts):
            padded[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = 1
        output = self.model(input_ids=padded, attention_mask=mask, use_cache=False)
        hidden = output.last_hidden_state
        return [hidden[row, length - 1] for row, length in enumerate(lengths)]

    def close(self) -> None:
        """Nothing to stop."""


def passages(count: int) -> list[list[int]]:
    """Prompts of 16 to 256 tokens, the short ones more often."""
    chooser = np.random.default_rng(0)
    lengths = np.exp(chooser.uniform(np.log(16), np.log(256), count)).astype(int)
    return [chooser.integers(3, VOCABULARY, n).tolist() for n in lengths]


def rerank(count: int, half: int) -> list[list[int]]:
    """Prompts that are the same for `half` tokens and their own for about as many more."""
    chooser = np.random.default_rng(1)
    common = chooser.integers(3, VOCABULARY, half).tolist()
    lengths = chooser.integers(half * 3 // 4, half * 5 // 4, count)
    return [common + chooser.integers(3, VOCABULARY, n).tolist() for n in lengths]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--dtype", default="bfloat16", choices=LEAST)
    parser.add_argument("--passages", type=int, default=64)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--half", type=int, default=64, help="tokens of the common prefix")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=300, help="bound on a work's rounds")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            path = save_model(size, Path(folder) / size)
            peer = Transformers("transformers", path, args.dtype)
            cached = Cenote("cenote-cached", path, args.dtype, caching=True)
            plain = Cenote("cenote-plain", path, args.dtype, caching=False)
            texts, pairs = passages(args.passages), rerank(args.documents, args.half)
            pieces: tuple[tuple[str, list[Candidate[Prompts]], Prompts], ...] = (
                ("passages", [peer, cached], texts),
                ("rerank", [plain, cached], pairs),
                ("pool", [plain, cached], texts),
            )
            for title, candidates, work in pieces:
                measured = interleave(candidates, work, args.rounds, args.seconds)
                name = f"{title}, {size}, {args.dtype}"
                results[name] = compare(
                    measured,
                    base=candidates[0].name,
                    tokens=sum(map(len, work)),
                    agree=cosine,
                    least=dict.fromkeys(measured.seconds, LEAST[args.dtype]),
                )
                print_table(name, results[name])
            del peer, cached, plain, pieces, candidates
            gc.collect()
    finish("decoder", results)


if __name__ == "__main__":
    main()
