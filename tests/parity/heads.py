"""What each task of a model should give, from a reference's rows: hidden states or a head's logits.

One call compares every task that a folder's model has; its lengths are odd ones, a single token and
the most that the model takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from reference import FLOAT32, Served, Tolerance, assert_matches_reference, serve
from torch import Tensor
from torch.nn import functional as F

from cenote.params import PoolingParams, Task

HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")

Rows = Sequence[Sequence[int]]
Reference = Callable[[Served, Rows, Rows | None], list[Tensor]]


def random_ids(served: Served, lengths: Sequence[int] = (), first_id: int = 5) -> list[list[int]]:
    """Token ids of sequences that are short, odd, equal and as long as the model takes.

    From 5: special tokens, above all padding, have rules of their own in the references.
    """
    generator = torch.Generator().manual_seed(0)
    lengths = lengths or [1, 2, 7, 33, 7, served.config.max_model_len]
    return [
        torch.randint(first_id, served.config.vocab_size, (n,), generator=generator).tolist()
        for n in lengths
    ]


def random_types(ids: Rows) -> list[list[int]]:
    """Token types that turn from 0 to 1 on the way, as a pair's do."""
    return [[int(at > len(row) // 2) for at in range(len(row))] for row in ids]


def reference_outputs(
    served: Served, ids: Rows, types: Rows | None, folder: Path | None = None
) -> list[Tensor]:
    """Logits, or hidden states without a head, of each sequence alone: nothing is padded.

    `folder` where the served one has a form that transformers doesn't read.
    """
    folder = folder or served.config.path
    name = "AutoModel"
    if served.model.info.head is not None:
        name = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model = getattr(transformers, name).from_pretrained(folder).eval()
    found = []
    with torch.inference_mode():
        for index, row in enumerate(ids):
            extra: dict[str, Any] = {}
            if types is not None:
                extra["token_type_ids"] = torch.tensor([types[index]])
            output = model(input_ids=torch.tensor([row]), **extra)
            found.append(output["logits" if "logits" in output else "last_hidden_state"][0])
    return found


def assert_tasks_match(
    served: Served,
    ids: Rows,
    types: Rows | None,
    outputs: Sequence[Tensor],
    tolerance: Tolerance = FLOAT32,
) -> None:
    """Every task of the model against what the reference's rows make of it."""
    for task in served.poolers:
        expected = [_expected(served, task, item) for item in outputs]
        assert_matches_reference(served, task, ids, expected, types=types, tolerance=tolerance)
        if task in ("classify", "token_classify"):
            raw = PoolingParams(task=task, use_activation=False)
            # Logits near zero have no angle to speak of.
            numbers = replace(tolerance, cosine=-1.0)
            assert_matches_reference(
                served, task, ids, outputs, types=types, params=raw, tolerance=numbers
            )


def _expected(served: Served, task: Task, rows: Tensor) -> Tensor:
    """`rows`: a sequence's hidden states, or its head's logits."""
    match task:
        case "token_embed":
            return F.normalize(rows, dim=-1)
        case "embed":
            (mode,) = served.config.pooler.modes
            pooled = {"cls": rows[0], "last": rows[-1], "mean": rows.mean(0)}[mode]
            return F.normalize(pooled, dim=-1) if served.config.pooler.normalize else pooled
        case "sparse_embed":
            return torch.log1p(torch.relu(rows)).amax(dim=0)
        case _:
            return rows.softmax(-1) if rows.shape[-1] > 1 else rows


def assert_head_matches(
    folder: Path,
    kernels: str,
    *,
    types: bool = False,
    lengths: Sequence[int] = (),
    reference: Reference = reference_outputs,
    **settings: Any,
) -> None:
    """The folder's model against its reference, in float32."""
    served = serve(folder, kernels, **settings)
    ids = random_ids(served, lengths)
    token_types = random_types(ids) if types else None
    outputs = reference(served, ids, token_types)
    assert_tasks_match(served, ids, token_types, outputs)


def resave(folder: Path, other: Path) -> Path:
    """A copy of a folder whose tensors have transformers' names, where the hub's are others."""
    shutil.copytree(folder, other, dirs_exist_ok=True)
    name = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model = getattr(transformers, name).from_pretrained(folder)
    model.save_pretrained(other, save_original_format=False)
    return other
