"""Each head of an encoder family against transformers: the body, two classifiers, a masked LM.

One call for a head; lengths are odd ones, a single token and the most that the model has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from reference import Served, Tolerance, assert_matches_reference, serve
from torch import Tensor
from torch.nn import functional as F

from cenote.params import PoolingParams

HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")

Rows = Sequence[Sequence[int]]
Reference = Callable[[Served, Rows, Rows | None], list[Tensor]]


def random_ids(served: Served, lengths: Sequence[int] = ()) -> list[list[int]]:
    """Token ids of sequences that are short, odd, equal and as long as the model takes."""
    generator = torch.Generator().manual_seed(0)
    lengths = lengths or [1, 2, 7, 33, 7, served.config.max_model_len]
    # From 5: special tokens, above all padding, have rules of their own in the references.
    return [
        torch.randint(5, served.config.vocab_size, (n,), generator=generator).tolist()
        for n in lengths
    ]


def random_types(ids: Rows) -> list[list[int]]:
    """Token types that turn from 0 to 1 on the way, as a pair's do."""
    return [[int(at > len(row) // 2) for at in range(len(row))] for row in ids]


def reference_outputs(
    served: Served, ids: Rows, types: Rows | None, folder: Path | None = None
) -> list[Tensor]:
    """Logits, or hidden states without a head, of each sequence alone: nothing is padded.

    `folder` where the served one has a form that the reference doesn't read.
    """
    name = "AutoModel" if served.model.info.head is None else served.config.architecture
    model = getattr(transformers, name).from_pretrained(folder or served.config.path).eval()
    found = []
    with torch.inference_mode():
        for index, row in enumerate(ids):
            extra: dict[str, Any] = {}
            if types is not None:
                extra["token_type_ids"] = torch.tensor([types[index]])
            output = model(input_ids=torch.tensor([row]), **extra)
            found.append(output["logits" if "logits" in output else "last_hidden_state"][0])
    return found


def assert_head_matches(
    folder: Path,
    kernels: str,
    *,
    types: bool = False,
    lengths: Sequence[int] = (),
    reference: Reference = reference_outputs,
    **settings: Any,
) -> None:
    """The folder's model against transformers, in float32, and its vectors in bfloat16 as well.

    `reference` may be another one, for families that transformers doesn't have.
    """
    served = serve(folder, kernels, **settings)
    ids = random_ids(served, lengths)
    token_types = random_types(ids) if types else None
    outputs = reference(served, ids, token_types)
    if served.model.info.head is None:
        narrow = serve(folder, kernels, torch.bfloat16, **settings)
        _assert_vectors(served, narrow, ids, token_types, outputs)
    elif served.model.info.head == "vocab":
        _assert_sparse(served, ids, token_types, outputs)
    else:
        task = served.model.info.head
        raw = PoolingParams(task=task, use_activation=False)
        scores = [item.softmax(-1) for item in outputs]
        assert_matches_reference(served, task, ids, scores, types=token_types)
        assert_matches_reference(served, task, ids, outputs, types=token_types, params=raw)


def resave(folder: Path, other: Path) -> Path:
    """A copy of a folder whose tensors have transformers' names, where the hub's are others."""
    shutil.copytree(folder, other, dirs_exist_ok=True)
    name = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model = getattr(transformers, name).from_pretrained(folder)
    model.save_pretrained(other, save_original_format=False)
    return other


def _assert_vectors(
    served: Served, narrow: Served, ids: Rows, types: Rows | None, rows: list[Tensor]
) -> None:
    tokens = [F.normalize(item, dim=-1) for item in rows]
    means = [F.normalize(item.mean(0), dim=-1) for item in rows]
    assert_matches_reference(served, "token_embed", ids, tokens, types=types)
    assert_matches_reference(served, "embed", ids, means, types=types)
    loose = Tolerance(cosine=0.9995)
    assert_matches_reference(narrow, "embed", ids, means, types=types, tolerance=loose)


def _assert_sparse(served: Served, ids: Rows, types: Rows | None, logits: list[Tensor]) -> None:
    for found, row in zip(served.run("sparse_embed", ids, types), logits, strict=True):
        expected = torch.log1p(torch.relu(row)).amax(dim=0)
        assert found.indices is not None
        dense = torch.zeros(expected.shape).index_put((found.indices.long(),), found.data)
        assert (dense - expected).abs().max() <= 1e-5
