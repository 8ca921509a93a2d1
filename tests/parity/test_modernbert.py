"""ModernBERT against transformers and sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from heads import HEADS, assert_head_matches
from sentence import assert_vectors_match
from tiny import MakeTiny

# A window of 8 on both sides; three layers, so that both kinds of attention come.
CONFIG = {"local_attention": 16, "num_hidden_layers": 4, "max_position_embeddings": 600}
# Below the window, at its edges, above it, and long.
LENGTHS = (1, 2, 8, 9, 10, 17, 18, 33, 600)


@pytest.mark.parametrize("head", HEADS)
def test_modernbert_is_that_of_transformers(head: str, kernels: str, make_tiny: MakeTiny) -> None:
    folder = make_tiny(f"ModernBert{head}", "bpe", num_labels=3, **CONFIG)
    assert_head_matches(folder, kernels, lengths=LENGTHS, max_model_len=600)


@pytest.mark.parametrize("head", HEADS)
def test_optional_biases_other_bases_and_layer_types_are_followed(
    head: str, make_tiny: MakeTiny
) -> None:
    kinds = ["sliding_attention", "full_attention"]
    biases = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
    folder = make_tiny(
        f"ModernBert{head}",
        "bpe",
        num_labels=3,
        layer_types=kinds,
        local_attention=6,
        rope_parameters={kind: {"rope_theta": 50.0 + len(kind)} for kind in kinds},
        classifier_pooling="mean",
        classifier_activation="relu",
        decoder_bias=False,
        **dict.fromkeys(biases, True),
    )
    assert_head_matches(folder, "torch")


def test_texts_give_the_vectors_of_sentence_transformers(
    kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    assert_vectors_match(make_tiny("ModernBertModel", "bpe", **CONFIG), tmp_path, kernels, "cls")
