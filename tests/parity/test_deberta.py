"""DeBERTa's first version against transformers and sentence-transformers."""

from __future__ import annotations

from typing import Any

import pytest
from heads import assert_head_matches
from sentence import assert_scores_match
from tiny import MakeTiny

HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
# The settings of deberta-base.
BASE: dict[str, Any] = {
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_biased_input": False,
}
OTHERS = [
    {**BASE, "pos_att_type": "p2c", "max_relative_positions": 20},
    {**BASE, "pos_att_type": "c2p", "position_biased_input": True},
    {"relative_attention": False, "type_vocab_size": 2},
]


@pytest.mark.parametrize("head", HEADS)
def test_deberta_is_that_of_transformers(head: str, kernels: str, make_tiny: MakeTiny) -> None:
    assert_head_matches(make_tiny(f"Deberta{head}", "bpe", num_labels=3, **BASE), kernels)


@pytest.mark.parametrize("settings", OTHERS)
def test_other_shapes_of_deberta(settings: dict[str, Any], make_tiny: MakeTiny) -> None:
    folder = make_tiny("DebertaModel", "bpe", **settings)
    assert_head_matches(folder, "torch", types="type_vocab_size" in settings)


def test_pairs_score_as_cross_encoder_does(make_tiny: MakeTiny) -> None:
    name = "DebertaForSequenceClassification"
    assert_scores_match(make_tiny(name, "bpe", num_labels=1, **BASE))
