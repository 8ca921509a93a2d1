"""Models that no package ships, made from MiniLM: a cross-encoder and a ColBERT model.

The encoder's weights are real, the heads are random: good for speed and agreement, not for quality.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

from cenote.loader.hub import resolve


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
    """MiniLM with a 128-dimension projection, in sentence-transformers' multi-vector form."""
    from sentence_transformers import MultiVectorEncoder

    source = resolve("minilm", None).folder
    bare = folder.with_name(folder.name + "-encoder")
    shutil.copytree(
        source, bare, ignore=shutil.ignore_patterns("modules.json", "1_Pooling", "config_sentence*")
    )
    torch.manual_seed(0)
    MultiVectorEncoder(str(bare), device="cpu").save_pretrained(str(folder))
    return folder
