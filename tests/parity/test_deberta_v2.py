"""DeBERTa v2 and v3 against transformers and sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from heads import assert_head_matches
from sentence import assert_scores_match, assert_vectors_match
from tiny import MakeTiny

HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
# The settings of deberta-v3-base, with buckets that lengths go well beyond.
V3: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "max_relative_positions": -1,
}
V2_XLARGE = {**V3, "conv_kernel_size": 3, "conv_act": "gelu", "max_relative_positions": 40}
OWN_WEIGHTS = {**V3, "share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1}
OTHERS = [
    V2_XLARGE,
    OWN_WEIGHTS,
    {**OWN_WEIGHTS, "pos_att_type": "c2p", "max_relative_positions": 20},
    {**V3, "pos_att_type": "p2c", "position_biased_input": True, "type_vocab_size": 2},
    {"relative_attention": False},
]


@pytest.mark.parametrize("head", HEADS)
def test_deberta_v3_is_that_of_transformers(head: str, kernels: str, make_tiny: MakeTiny) -> None:
    assert_head_matches(make_tiny(f"DebertaV2{head}", "wordpiece", num_labels=3, **V3), kernels)


@pytest.mark.parametrize("settings", OTHERS)
def test_other_shapes_of_deberta_v2(
    settings: dict[str, Any], kernels: str, make_tiny: MakeTiny
) -> None:
    folder = make_tiny("DebertaV2Model", "wordpiece", **settings)
    assert_head_matches(folder, kernels, types="type_vocab_size" in settings)


def test_the_original_masked_lm_head(make_tiny: MakeTiny) -> None:
    assert_head_matches(make_tiny("DebertaV2ForMaskedLM", "wordpiece", legacy=False, **V3), "torch")


def test_texts_give_the_vectors_of_sentence_transformers(
    kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    assert_vectors_match(make_tiny("DebertaV2Model", "unigram", **V3), tmp_path, kernels)


def test_rerankers_score_as_cross_encoder_does(make_tiny: MakeTiny) -> None:
    name = "DebertaV2ForSequenceClassification"
    assert_scores_match(make_tiny(name, "wordpiece", num_labels=1, **V3))
