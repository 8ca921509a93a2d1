"""Who is measured. One file for each engine; a peer that is not installed is left out, aloud.

To add one: a class with `name`, `run` and `close` (see `harness.Candidate`), and a line below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.harness import Candidate

# Name on the command line → "module:class" and its arguments after the model's folder.
EMBEDDERS: dict[str, tuple[str, dict[str, str]]] = {
    "st-fp32": ("sentence_transformers:Embedder", {"dtype": "float32"}),
    "st-bf16": ("sentence_transformers:Embedder", {"dtype": "bfloat16"}),
    "cenote-fp32": ("cenote:Embedder", {"dtype": "float32"}),
    "cenote-bf16": ("cenote:Embedder", {"dtype": "bfloat16"}),
}
CROSS_ENCODERS: dict[str, tuple[str, dict[str, str]]] = {
    "st-fp32": ("sentence_transformers:CrossEncoderReranker", {"dtype": "float32"}),
    "st-bf16": ("sentence_transformers:CrossEncoderReranker", {"dtype": "bfloat16"}),
    "cenote-fp32": ("cenote:Reranker", {"dtype": "float32"}),
    "cenote-bf16": ("cenote:Reranker", {"dtype": "bfloat16"}),
}
COLBERTS: dict[str, tuple[str, dict[str, str]]] = {
    "st-fp32": ("sentence_transformers:ColbertReranker", {"dtype": "float32"}),
    "st-bf16": ("sentence_transformers:ColbertReranker", {"dtype": "bfloat16"}),
    "cenote-fp32": ("cenote:Reranker", {"dtype": "float32"}),
    "cenote-bf16": ("cenote:Reranker", {"dtype": "bfloat16"}),
}


def load(
    table: dict[str, tuple[str, dict[str, str]]], names: Sequence[str], model: str
) -> list[Candidate[Any]]:
    """The named candidates, loaded; those whose library is missing are left out with a note."""
    loaded = []
    for name in names:
        place, arguments = table[name]
        module, kind = place.split(":")
        try:
            made = getattr(import_module(f"benchmarks.candidates.{module}"), kind)
            loaded.append(made(name, model, **arguments))
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return loaded
