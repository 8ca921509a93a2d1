"""Who is measured, each in a process of its own. A peer that can't run is left out, aloud.

To add one: a class with `name`, `run` and `close` (see `work.Candidate`) in a file here that
imports nothing of Cenote, and a line below. The environment of a peer is described by
`benchmarks/requirements/ENVIRONMENT.txt`; `--python-for ENVIRONMENT=INTERPRETER` says where it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from benchmarks.remote import Missing, Remote

Environment = Literal["own", "peers", "onnx", "infinity", "pylate"]


@dataclass(frozen=True, slots=True)
class Spec:
    """Where a candidate is ("module:class"), its keywords, and the environment that it needs.

    `least` is the agreement it must reach: int8 has its own, lower one.
    """

    place: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    environment: Environment = "own"
    least: float | None = None


FP32: Mapping[str, Any] = {"dtype": "float32"}
BF16: Mapping[str, Any] = {"dtype": "bfloat16"}
INT8: Mapping[str, Any] = {"dtype": "bfloat16", "quantization": "int8"}
MIXED: Mapping[str, Any] = {"dtype": "bfloat16", "quantization": "int8-mixed"}

# Least agreement of int8 vectors and scores.
INT8_LEAST = 0.97

EMBEDDERS: dict[str, Spec] = {
    "st-fp32": Spec("sentence_transformers:Embedder", FP32),
    "st-bf16": Spec("sentence_transformers:Embedder", BF16),
    "st-onnx": Spec("sentence_transformers:Embedder", {"backend": "onnx"}, "onnx"),
    "onnx-fp32": Spec("onnx:Embedder", {}, "peers"),
    "fastembed": Spec("fastembed:Embedder", {}, "peers"),
    "openvino-fp32": Spec("openvino:Embedder", {"precision": "f32"}, "peers"),
    "openvino-bf16": Spec("openvino:Embedder", {"precision": "bf16"}, "peers"),
    "openvino-int8": Spec(
        "openvino:Embedder", {"precision": "bf16", "int8": True}, "peers", INT8_LEAST
    ),
    "infinity-fp32": Spec("infinity:Embedder", FP32, "infinity"),
    "infinity-bf16": Spec("infinity:Embedder", BF16, "infinity"),
    "cenote-fp32": Spec("cenote:Embedder", FP32),
    "cenote-bf16": Spec("cenote:Embedder", BF16),
    "cenote-int8-mixed": Spec("cenote:Embedder", MIXED, "own", INT8_LEAST),
    "cenote-int8": Spec("cenote:Embedder", INT8, "own", INT8_LEAST),
}
CROSS_ENCODERS: dict[str, Spec] = {
    "st-fp32": Spec("sentence_transformers:CrossEncoderReranker", FP32),
    "st-bf16": Spec("sentence_transformers:CrossEncoderReranker", BF16),
    "onnx-fp32": Spec("onnx:Reranker", {}, "peers"),
    "openvino-bf16": Spec("openvino:Reranker", {"precision": "bf16"}, "peers"),
    "openvino-int8": Spec(
        "openvino:Reranker", {"precision": "bf16", "int8": True}, "peers", INT8_LEAST
    ),
    "cenote-fp32": Spec("cenote:Reranker", FP32),
    "cenote-bf16": Spec("cenote:Reranker", BF16),
    "cenote-int8": Spec("cenote:Reranker", INT8, "own", INT8_LEAST),
}
COLBERTS: dict[str, Spec] = {
    "st-fp32": Spec("sentence_transformers:ColbertReranker", FP32),
    "st-bf16": Spec("sentence_transformers:ColbertReranker", BF16),
    "pylate-fp32": Spec("pylate:ColbertReranker", FP32, "pylate"),
    "pylate-bf16": Spec("pylate:ColbertReranker", BF16, "pylate"),
    "cenote-fp32": Spec("cenote:Reranker", FP32),
    "cenote-bf16": Spec("cenote:Reranker", BF16),
}
MAXSIMS: dict[str, Spec] = {
    "padded": Spec("padded:MaxSim"),
    "pylate": Spec("pylate:MaxSim", {}, "pylate"),
    "cenote-torch": Spec("cenote:MaxSim", {"native": False}),
    "cenote": Spec("cenote:MaxSim", {"native": True}),
}


def interpreters(given: Sequence[str]) -> dict[str, str]:
    """Of `--python-for`: interpreter by environment. Exits where one is not `NAME=PATH`."""
    found = {"own": sys.executable}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or name not in get_args(Environment)[1:]:
            known = "=, ".join(get_args(Environment)[1:])
            sys.exit(f"--python-for must be one of {known}= and a path, not {text!r}.")
        found[name] = path
    return found


def load(
    table: Mapping[str, Spec],
    names: Sequence[str],
    model: str,
    pythons: Mapping[str, str],
    first: Any,
) -> list[Remote]:
    """The named candidates, each started and run once on `first`; others are left out aloud."""
    loaded = []
    for name in names:
        spec = table[name]
        python = pythons.get(spec.environment, sys.executable)
        try:
            loaded.append(Remote(name, spec.place, model, dict(spec.keywords), python, first))
        except Missing as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
        except (RuntimeError, OSError) as error:
            print(f"{name} is left out, it failed: {error}", file=sys.stderr)
    return loaded
