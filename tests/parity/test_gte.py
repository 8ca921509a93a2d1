"""GTE (NewModel) against transformers, by the names of both repositories."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from heads import HEADS, assert_head_matches, reference_outputs, resave
from sentence import assert_vectors_match
from tiny import MakeTiny, edit_config
from torch import Tensor
from transformers.models.gte import modeling_gte

LONG = {"max_position_embeddings": 600, "rope_parameters": {"rope_theta": 500.0}}


@pytest.mark.parametrize("head", HEADS)
def test_both_names_of_the_tensors_load(head: str, make_tiny: MakeTiny, tmp_path: Path) -> None:
    folder = make_tiny(
        f"Gte{head}", "unigram", num_labels=3, type_vocab_size=0, initializer_range=0.2
    )
    assert_head_matches(resave(folder, tmp_path), "torch")


def ntk(config: Any, *_: Any, **__: Any) -> tuple[Tensor, float]:
    """Fixed NTK scaling by 8: 1 / (base · 8)^(2i/d) / 8^(2/d)."""
    return 1 / (20000.0 * 8) ** (torch.arange(0, 8, 2) / 8) / 8 ** (2 / 8), 1.0


def test_a_folder_of_the_first_repository_loads(
    make_tiny: MakeTiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotary = modeling_gte.GteRotaryEmbedding
    monkeypatch.setattr(rotary, "compute_default_rope_parameters", staticmethod(ntk))
    folder = make_tiny("GteModel", "unigram", seed=1, **LONG)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    scaling = {"type": "ntk", "factor": 8.0}
    old = {"rope_theta": 20000.0, "rope_scaling": scaling, "rope_parameters": None}
    edit_config(tmp_path, architectures=["NewModel"], model_type="new", pack_qkv=True, **old)
    reference = partial(reference_outputs, folder=folder)
    assert_head_matches(tmp_path, "torch", reference=reference, max_model_len=600)


def test_texts_give_the_vectors_of_sentence_transformers(
    kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    assert_vectors_match(make_tiny("GteModel", "unigram", **LONG), tmp_path, kernels, "cls")
