"""EuroBERT against transformers and sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from heads import HEADS, assert_head_matches
from sentence import assert_vectors_match
from tiny import MakeTiny

# Unnormalised embeddings make wide weights too wide for bfloat16, in any implementation.
LONG = {"max_position_embeddings": 600, "initializer_range": 0.2}


@pytest.mark.parametrize("head", HEADS)
def test_eurobert_is_that_of_transformers(head: str, kernels: str, make_tiny: MakeTiny) -> None:
    config = {"num_key_value_heads": 2, "rope_parameters": {"rope_theta": 250000.0}}
    folder = make_tiny(f"EuroBert{head}", "bpe", num_labels=3, **config, **LONG)
    assert_head_matches(folder, kernels, max_model_len=600)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("pooling", ["bos", "mean"])
def test_biases_head_sizes_and_poolings_are_followed(
    head: str, pooling: str, make_tiny: MakeTiny
) -> None:
    config = {"attention_bias": True, "mlp_bias": True, "head_dim": 16}
    scaling = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    folder = make_tiny(
        f"EuroBert{head}",
        "bpe",
        num_labels=3,
        classifier_pooling=pooling,
        rope_parameters=scaling,
        **config,
    )
    assert_head_matches(folder, "torch")


def test_texts_give_the_vectors_of_sentence_transformers(
    kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    assert_vectors_match(make_tiny("EuroBertModel", "bpe", **LONG), tmp_path, kernels)
