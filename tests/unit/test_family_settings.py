"""Settings of encoder families that can't be followed are refused by name, before any weight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cenote.config.engine import EngineConfig
from cenote.config.model import load_model_config
from cenote.errors import ModelLoadError
from cenote.models.registry import model_class


@pytest.mark.parametrize(
    ("architecture", "settings", "message"),
    [
        ("ModernBertModel", {"layer_types": ["full_attention"] * 7}, "layer_types"),
        ("ModernBertModel", {"layer_types": ["odd", "full_attention"]}, "layer_types"),
        ("ModernBertForSequenceClassification", {"classifier_pooling": "max"}, "not 'max'"),
        ("EuroBertForSequenceClassification", {"clf_pooling": "first"}, "not 'first'"),
        ("NewModel", {"position_embedding_type": "absolute"}, "position_embedding_type 'absolute'"),
        ("NewModel", {"layer_norm_type": "rms_norm"}, "layer_norm_type 'rms_norm'"),
        ("NewModel", {"logn_attention_scale": True}, "logn_attention_scale True"),
        ("NomicBertModel", {"prenorm": True}, "prenorm True"),
        ("NomicBertModel", {"expert_choice_router": True}, "expert_choice_router True"),
        ("NomicBertModel", {"mlp_fc2_bias": True}, "qkv_proj_bias and mlp_fc2_bias"),
        ("NomicBertModel", {"moe_every_n_layers": 2}, "num_experts"),
        ("JinaBertModel", {"position_embedding_type": "absolute"}, "'absolute'"),
        ("JinaBertModel", {"feed_forward_type": "original"}, "feed_forward_type 'original'"),
        ("JinaEmbeddingsV3Model", {"position_embedding_type": "alibi"}, "'alibi'"),
        ("GteModel", {"rope_parameters": {"rope_type": "axial"}}, "'axial'"),
    ],
)
def test_a_setting_that_is_not_supported_is_named(
    architecture: str, settings: dict[str, Any], message: str, tiny_bert: Path
) -> None:
    config = load_model_config(tiny_bert, name="tiny", revision="", engine=EngineConfig())
    plain = {"vocab_size": config.vocab_size, "max_position_embeddings": 64, **settings}
    with torch.device("meta"), pytest.raises(ModelLoadError, match=message):
        model_class(architecture)(replace(config, hf=plain, num_labels=2))


@pytest.mark.parametrize(
    ("hf", "name"),
    [
        ({"architectures": ["JinaBertForMaskedLM"], "emb_pooler": "mean"}, "JinaBertModel"),
        ({"architectures": ["JinaBertForMaskedLM"]}, "JinaBertForMaskedLM"),
        ({"architectures": ["XLMRobertaModel"]}, "XLMRobertaModel"),
        ({"architectures": ["XLMRobertaModel"], "use_flash_attn": True}, "JinaEmbeddingsV3Model"),
        ({"architectures": ["HF_ColBERT"], "rotary_emb_base": 1}, "JinaEmbeddingsV3ForColBERT"),
    ],
)
def test_architectures_with_shared_names_are_told_apart(hf: dict[str, Any], name: str) -> None:
    from cenote.config.architectures import name_of

    assert name_of({"model_type": "xlm-roberta", **hf}, "xlm-roberta") == name
