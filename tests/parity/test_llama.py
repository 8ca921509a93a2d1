"""Llama against transformers: the body by its last row and its mean, and the classifier."""

from __future__ import annotations

import pytest
from heads import random_ids, reference_outputs
from reference import assert_matches_reference, serve
from tiny import MakeTiny
from torch.nn import functional as F

from cenote.params import PoolingParams

GROUPED = {"num_key_value_heads": 2, "max_position_embeddings": 600, "initializer_range": 0.2}


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("architecture", ["LlamaModel", "LlamaForCausalLM"])
def test_the_body_is_that_of_transformers(
    architecture: str, pooling: str, kernels: str, make_tiny: MakeTiny
) -> None:
    folder = make_tiny(architecture, "bpe", **GROUPED)
    served = serve(folder, kernels, pooling=pooling, max_model_len=600)
    ids = random_ids(served)
    rows = reference_outputs(served, ids, None)
    pooled = [item[-1] if pooling == "last" else item.mean(0) for item in rows]
    expected = [F.normalize(item, dim=-1) for item in pooled]
    assert_matches_reference(served, "embed", ids, expected)


@pytest.mark.parametrize("labels", [1, 3])
def test_the_classifier_is_that_of_transformers(
    labels: int, kernels: str, make_tiny: MakeTiny
) -> None:
    config = {"attention_bias": True, "mlp_bias": True, "head_dim": 16}
    scaling = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    folder = make_tiny(
        "LlamaForSequenceClassification",
        "bpe",
        num_labels=labels,
        rope_parameters=scaling,
        **config,
        **GROUPED,
    )
    served = serve(folder, kernels, max_model_len=600)
    ids = random_ids(served)
    logits = reference_outputs(served, ids, None)
    raw = PoolingParams("classify", use_activation=False)
    assert_matches_reference(served, "classify", ids, logits, params=raw)


def test_the_last_row_is_the_default_of_a_causal_model(make_tiny: MakeTiny) -> None:
    served = serve(make_tiny("LlamaModel", "bpe", **GROUPED), "torch")
    assert served.config.pooler.modes == ("last",)
    assert served.model.causal
    assert served.model.kv_shape is not None


def test_a_configuration_may_turn_to_both_sides(make_tiny: MakeTiny) -> None:
    folder = make_tiny("LlamaModel", "bpe", use_bidirectional_attention=True, **GROUPED)
    served = serve(folder, "torch")
    assert not served.model.causal
    assert served.model.kv_shape is None
    assert served.config.pooler.modes == ("mean",)
