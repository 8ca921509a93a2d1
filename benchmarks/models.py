"""Models that no package ships: a cross-encoder and a ColBERT model of MiniLM, larger encoders.

Weights of the heads, and all of the larger encoders', are random: good for speed and agreement, not
for quality.
"""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel

from cenote.loader.hub import resolve

# Of the encoders made here: size of the hidden state, layers, heads.
SIZES = {"small": (384, 12, 12), "base": (768, 12, 12)}
POSITIONS = 2048

# About 1 / sqrt(hidden size): each layer changes its input, so a wrong one shows.
WEIGHT_RANGE = 0.04


def folder_of(name: str, made_in: Path) -> Path:
    """The folder of a model: `small` or `base` (made in `made_in`), or of any other name."""
    if name not in SIZES:
        return resolve(name, None).folder
    folder = made_in / name
    if not folder.exists():
        _encoder(name, folder)
    return folder


def _encoder(name: str, folder: Path) -> None:
    """A random BERT with MiniLM's tokenizer that takes 2,048 tokens; vectors are means."""
    hidden, layers, heads = SIZES[name]
    source = resolve("minilm", None).folder
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=POSITIONS,
        initializer_range=WEIGHT_RANGE,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, model_max_length=POSITIONS).save_pretrained(folder)
    for part in ("modules.json", "config_sentence_transformers.json", "1_Pooling"):
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy
        copy(source / part, folder / part)
    limits = {"max_seq_length": POSITIONS, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limits))
    pooling = folder / "1_Pooling" / "config.json"
    settings = json.loads(pooling.read_text())
    settings["word_embedding_dimension"] = hidden
    pooling.write_text(json.dumps(settings))


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
