"""MPNet against transformers and sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from heads import assert_head_matches
from sentence import assert_scores_match, assert_vectors_match
from tiny import MakeTiny

HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
SIZES = {"pad_token_id": 1, "max_position_embeddings": 302, "length": 300}


@pytest.mark.parametrize("head", HEADS)
def test_mpnet_is_that_of_transformers(head: str, kernels: str, make_tiny: MakeTiny) -> None:
    folder = make_tiny(f"MPNet{head}", "mpnet", num_labels=3, **SIZES)
    assert_head_matches(folder, kernels)


def test_texts_give_the_vectors_of_sentence_transformers(
    kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    assert_vectors_match(make_tiny("MPNetModel", "mpnet", **SIZES), tmp_path, kernels)


def test_pairs_score_as_cross_encoder_does(make_tiny: MakeTiny) -> None:
    name = "MPNetForSequenceClassification"
    assert_scores_match(make_tiny(name, "mpnet", num_labels=1, **SIZES))
