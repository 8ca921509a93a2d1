"""What the ONNX and OpenVINO candidates share: the graph, the tokenizer, the batches, the head.

As a user who tunes by hand would do it: one graph with free axes, texts sorted by length, batches
bounded by padded tokens, mean pooling and normalisation in numpy.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from benchmarks.work import Array

INPUTS = ("input_ids", "attention_mask", "token_type_ids")

# Padded tokens and rows in a batch: the knee of ONNX Runtime and OpenVINO alike.
BATCH_TOKENS = 4096
BATCH_ROWS = 32


def export(folder: str, *, head: bool) -> Path:
    """The model as an ONNX file: hidden states, or logits with its head. Made once per model."""
    path = graph_folder(folder) / "model.onnx"
    if path.exists():
        return path
    kind = AutoModelForSequenceClassification if head else AutoModel
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    sample = torch.ones(2, 16, dtype=torch.long)
    axes = {0: "batch", 1: "tokens"}
    torch.onnx.export(
        _Graph(model, head),
        (sample, sample, torch.zeros_like(sample)),
        str(part),
        input_names=list(INPUTS),
        output_names=["out"],
        dynamic_axes=dict.fromkeys(INPUTS, axes) | {"out": {0: "batch"} if head else axes},
        opset_version=17,
        dynamo=False,
    )
    return part.rename(path)


def graph_folder(folder: str) -> Path:
    """Where the graphs of a model are kept: a place that its weights name."""
    weights = Path(folder, "model.safetensors").resolve()
    seen = weights.stat()
    key = hashlib.sha256(f"{weights} {seen.st_size} {seen.st_mtime_ns}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"benchmark-graphs-{key}"


class _Graph(torch.nn.Module):
    """The model with one output and its inputs by position; not all models take token types."""

    def __init__(self, model: torch.nn.Module, head: bool) -> None:
        super().__init__()
        self._model = model
        self._output = "logits" if head else "last_hidden_state"
        self._typed = "token_type_ids" in inspect.signature(model.forward).parameters

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        typed = {"token_type_ids": types} if self._typed else {}
        outputs = self._model(input_ids=ids, attention_mask=mask, **typed)
        result: torch.Tensor = getattr(outputs, self._output)
        return result


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts of like length: their places in the work, and the graph's inputs."""

    places: list[int]
    inputs: dict[str, Any]


class Text:
    """Texts to batches of a graph's `inputs`, sorted by length; results back in order."""

    def __init__(self, folder: str, inputs: Collection[str]) -> None:
        self._inputs = [name for name in INPUTS if name in inputs]
        self._tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens(Path(folder)))

    def batches(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> Iterator[Batch]:
        encoded = self._tokenizer.encode_batch(list(texts))
        order = sorted(range(len(encoded)), key=lambda at: -len(encoded[at].ids))
        at = 0
        while at < len(order):
            width = len(encoded[order[at]].ids)
            rows = max(1, min(BATCH_ROWS, BATCH_TOKENS // width))
            places = order[at : at + rows]
            at += rows
            inputs = {name: np.zeros((len(places), width), np.int64) for name in INPUTS}
            for row, place in enumerate(places):
                one, size = encoded[place], len(encoded[place].ids)
                inputs["input_ids"][row, :size] = one.ids
                inputs["attention_mask"][row, :size] = 1
                inputs["token_type_ids"][row, :size] = one.type_ids
            yield Batch(places, {name: inputs[name] for name in self._inputs})


def pooled(hidden: Array, mask: Any) -> Array:
    """Mean over real tokens, normalised."""
    weights = mask[:, :, None].astype(np.float32)
    vectors = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    result: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return result


def scores(logits: Array, mask: Any) -> Array:
    """What a cross-encoder with one label gives."""
    return np.reciprocal(1 + np.exp(-logits[:, :1].astype(np.float32)))


def max_tokens(folder: Path) -> int:
    """Where sentence-transformers would cut a text."""
    own = folder / "sentence_bert_config.json"
    if own.exists():
        return int(json.loads(own.read_text())["max_seq_length"])
    return int(AutoConfig.from_pretrained(folder).max_position_embeddings)
