"""The decoder families against transformers: bodies by their last row or mean, and classifiers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from heads import random_ids, reference_outputs
from reference import BFLOAT16, assert_matches_reference, serve
from sentence import assert_vectors_match
from tiny import MakeTiny, edit_config
from torch.nn import functional as F

from cenote.errors import ModelLoadError
from cenote.params import PoolingParams

LENGTHS = [1, 2, 7, 33, 7, 130]
SHARED = {"max_position_embeddings": 200, "initializer_range": 0.15, "num_key_value_heads": 2}
ALTERNATING = ["sliding_attention", "full_attention"]
WIDE = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 9}
ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2": {"num_key_value_heads": 4, "n_inner": 64, "activation_function": "gelu_new"},
    "Gemma": {"head_dim": 16},
    "Gemma2": {**WIDE, "attn_logit_softcapping": 5.0},
    "Gemma3Text": {**WIDE, "layer_types": ALTERNATING, "rope_parameters": ROPES},
    "Mistral": {"sliding_window": 9},
    "Phi3": {"sliding_window": 9},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    "Qwen3": {"head_dim": 16, "attention_bias": True},
}
# Kinds of rotary scaling with their settings; what is trained are 64 positions. Dynamic scaling is
# in test_nomic_bert.py.
_TRAINED = {"original_max_position_embeddings": 64}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "yarn": {"factor": 3.0, **_TRAINED},
    "llama3": {"factor": 3.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_TRAINED},
    "longrope": {"short_factor": [1.0, 1.1, 1.3, 2.0], "long_factor": [1.0, 1.7, 2.9, 4.5]},
}
LANGUAGE_MODELS = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_language_models_body_gives_its_last_row(
    family: str, kernels: str, make_tiny: MakeTiny
) -> None:
    architecture = LANGUAGE_MODELS.get(family, f"{family}ForCausalLM")
    folder = make_tiny(architecture, "bpe", **{**SHARED, **FAMILIES[family]})
    served = serve(folder, kernels, max_model_len=200)
    assert served.model.causal
    assert served.model.kv_shape is not None
    ids = random_ids(served, LENGTHS)
    rows = reference_outputs(served, ids, None)
    expected = [F.normalize(item[-1], dim=-1) for item in rows]
    assert_matches_reference(served, "embed", ids, expected)
    narrow = serve(folder, kernels, torch.bfloat16, max_model_len=200)
    assert_matches_reference(narrow, "embed", ids, expected, tolerance=BFLOAT16)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_classifier_is_that_of_transformers(
    family: str, kernels: str, make_tiny: MakeTiny
) -> None:
    settings = {**SHARED, **FAMILIES[family], "num_labels": 3}
    folder = make_tiny(f"{family}ForSequenceClassification", "bpe", **settings)
    served = serve(folder, kernels, max_model_len=200)
    ids = random_ids(served, LENGTHS)
    logits = reference_outputs(served, ids, None)
    raw = PoolingParams("classify", use_activation=False)
    assert_matches_reference(served, "classify", ids, logits, params=raw)


@pytest.mark.parametrize("kind", SCALINGS)
def test_every_rotary_scaling_goes_by_a_sequences_own_length(
    kind: str, kernels: str, make_tiny: MakeTiny
) -> None:
    rope = {"rope_type": kind, "rope_theta": 500.0, **SCALINGS[kind]}
    family = "Phi3" if kind == "longrope" else "Llama"
    trained = {"original_max_position_embeddings": 64} if kind == "longrope" else {}
    settings = {**SHARED, "num_key_value_heads": 4, **trained, "rope_parameters": rope}
    folder = make_tiny(f"{family}ForCausalLM", "bpe", **settings)
    served = serve(folder, kernels, max_model_len=200)
    ids = random_ids(served, [*LENGTHS, 64, 65])
    expected = [F.normalize(item[-1], dim=-1) for item in reference_outputs(served, ids, None)]
    assert_matches_reference(served, "embed", ids, expected)
    assert (served.model.kv_shape is None) == (kind == "longrope")
    # Where no prompt is longer than the training's, prompts may run in parts again.
    assert serve(folder, kernels, max_model_len=64).model.kv_shape is not None


@pytest.mark.parametrize("length", [1, 9, 33, 130])
def test_embedding_gemma_attends_to_both_sides_of_its_window(
    length: int, kernels: str, make_tiny: MakeTiny
) -> None:
    both = {"use_bidirectional_attention": True}
    settings = {**SHARED, **FAMILIES["Gemma3Text"], **both, "sliding_window": 16}
    served = serve(make_tiny("Gemma3TextModel", "bpe", **settings), kernels, max_model_len=200)
    assert not served.model.causal
    assert served.config.pooler.modes == ("mean",)
    ids = random_ids(served, [length, 5])
    rows = reference_outputs(served, ids, None)
    expected = [F.normalize(item.mean(0), dim=-1) for item in rows]
    assert_matches_reference(served, "embed", ids, expected)


@pytest.mark.parametrize("pooling", ["avg", "last"])
def test_bidirectional_llama_is_llama_without_the_causal_mask(
    pooling: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    folder = make_tiny("LlamaForSequenceClassification", "bpe", num_labels=1, **SHARED)
    reference = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    changed = shutil.copytree(folder, tmp_path / "model")
    name = "LlamaBidirectionalForSequenceClassification"
    edit_config(changed, architectures=[name], pooling=pooling, temperature=0.2)
    served = serve(changed, kernels, max_model_len=200)
    assert not served.model.causal
    ids = random_ids(served, LENGTHS)
    expected = []
    with torch.inference_mode():
        for row in ids:
            mask = torch.zeros(1, 1, len(row), len(row))
            out = reference.model(torch.tensor([row]), attention_mask=mask).last_hidden_state[0]
            pooled = out.mean(0) if pooling == "avg" else out[-1]
            expected.append(reference.score(pooled) / 0.2)
    raw = PoolingParams("classify", use_activation=False)
    assert_matches_reference(served, "classify", ids, expected, params=raw)


@pytest.mark.parametrize("family", ["Qwen3", "Mistral"])
def test_a_sentence_transformers_folder_of_a_decoder(
    family: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    folder = make_tiny(f"{family}Model", "bpe", **SHARED, **FAMILIES[family])
    assert_vectors_match(folder, tmp_path / "model", kernels, "lasttoken")


@pytest.mark.parametrize("listed", [["full_attention"], ["full_attention", "chunked_attention"]])
def test_unknown_layers_are_refused(listed: list[str], make_tiny: MakeTiny, tmp_path: Path) -> None:
    folder = shutil.copytree(make_tiny("Qwen3Model", "bpe", **SHARED), tmp_path / "model")
    edit_config(folder, layer_types=listed)
    with pytest.raises(ModelLoadError, match="layer_types must list 2 of"):
        serve(folder, "torch")
