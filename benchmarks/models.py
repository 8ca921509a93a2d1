"""Models that no package ships: a cross-encoder and a ColBERT model of MiniLM, larger encoders.

Weights of the heads, and all of the larger encoders', are random: good for speed and agreement, not
for quality. All are folders as sentence-transformers saves them.
"""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    Qwen3Config,
    Qwen3ForSequenceClassification,
)

from benchmarks.encoders import FAMILIES, POSITIONS
from benchmarks.sentencepiece import trained
from cenote.loader.hub import resolve


@dataclass(frozen=True, slots=True)
class Made:
    """An encoder to be made: its family, how it differs, and whose kind of tokenizer it has."""

    family: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    positions: int = POSITIONS
    multilingual: bool = False


MADE = {
    "small": Made("BERT", {"hidden_size": 384, "intermediate_size": 4 * 384}),
    "base": Made("BERT"),
    "modernbert-base": Made("ModernBERT", positions=8192),
    "xlmr-base": Made("XLM-RoBERTa", multilingual=True),
}


def folder_of(name: str, made_in: Path) -> Path:
    """The folder of a model: one of `MADE` (made in `made_in`), or of any other name."""
    if name not in MADE:
        return resolve(name, None).folder
    folder = made_in / name
    if not folder.exists():
        _encoder(MADE[name], folder)
    return folder


def _encoder(made: Made, folder: Path) -> None:
    """A random encoder whose vectors are normalised means.

    Its tokenizer is MiniLM's, which uses the first 30,522 ids of whatever vocabulary there is; a
    multilingual one's is of the kind that XLM-RoBERTa has.
    """
    family = FAMILIES[made.family]
    family.save(folder, **made.changes)
    source = resolve("minilm", None).folder
    if made.multilingual:
        tokenizer = trained(int(family.config["vocab_size"]))
    else:
        tokenizer = AutoTokenizer.from_pretrained(source)
    _save_tokenizer(tokenizer, folder, made)
    for part in ("modules.json", "config_sentence_transformers.json", "1_Pooling"):
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy
        copy(source / part, folder / part)
    _write(
        folder / "sentence_bert_config.json",
        {"max_seq_length": made.positions, "do_lower_case": False},
    )
    pooling = folder / "1_Pooling" / "config.json"
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    _write(pooling, {**json.loads(pooling.read_text()), "word_embedding_dimension": hidden})


def _save_tokenizer(tokenizer: Any, folder: Path, made: Made) -> None:
    """As a class that every version of transformers knows, and without token types, which not all
    models take."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": made.positions,
    }
    _write(path, {**json.loads(path.read_text()), **settings})


def cross_encoder(folder: Path) -> Path:
    """A one-label sequence classifier on MiniLM, saved to `folder`."""
    source = resolve("minilm", None).folder
    torch.manual_seed(0)
    model = BertForSequenceClassification.from_pretrained(source, num_labels=1)
    torch.nn.init.normal_(model.bert.pooler.dense.weight, std=0.1)
    torch.nn.init.normal_(model.classifier.weight, std=0.5)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def decoder_reranker(folder: Path) -> Path:
    """A small random Qwen3 with a score head and MiniLM's tokenizer, saved to `folder`."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=30522,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=256,
        max_position_embeddings=512,
        initializer_range=0.1,
        num_labels=1,
        pad_token_id=0,
    )
    Qwen3ForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(resolve("minilm", None).folder).save_pretrained(folder)
    return folder


def colbert(folder: Path) -> Path:
    """MiniLM with a random projection to 128, as PyLate saves it: all three libraries read it.

    Documents of 300 tokens, as PyLate's own models have.
    """
    source = resolve("minilm", None).folder
    shutil.copytree(
        source,
        folder,
        ignore=shutil.ignore_patterns("modules.json", "1_Pooling", "config_sentence*"),
    )
    torch.manual_seed(0)
    dense = folder / "1_Dense"
    dense.mkdir()
    save_file({"linear.weight": torch.randn(128, 384) * 384**-0.5}, dense / "model.safetensors")
    activation = "torch.nn.modules.linear.Identity"
    _write(
        dense / "config.json",
        {
            "in_features": 384,
            "out_features": 128,
            "bias": False,
            "activation_function": activation,
        },
    )
    kinds = {"": "sentence_transformers.models.Transformer", "1_Dense": "pylate.models.Dense.Dense"}
    _write(
        folder / "modules.json",
        [
            {"idx": at, "name": str(at), "path": path, "type": kind}
            for at, (path, kind) in enumerate(kinds.items())
        ],
    )
    _write(folder / "sentence_bert_config.json", {"max_seq_length": 300, "do_lower_case": False})
    _write(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "ColBERT",
            "prompts": {},
            "similarity_fn_name": "MaxSim",
            "query_prefix": "[unused0]",
            "document_prefix": "[unused1]",
            "query_length": 32,
            "document_length": 300,
            "do_query_expansion": True,
            "attend_to_expansion_tokens": False,
            "skiplist_words": list(string.punctuation),
        },
    )
    return folder


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
