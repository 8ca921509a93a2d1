"""ERNIE against transformers and sentence-transformers."""

from __future__ import annotations

import pytest
from heads import assert_head_matches
from sentence import assert_scores_match
from tiny import MakeTiny

HEADS = ("ForPreTraining", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")
SIZES = {"use_task_id": True, "type_vocab_size": 4, "types": True}


@pytest.mark.parametrize("head", HEADS)
def test_ernie_is_that_of_transformers(head: str, kernels: str, make_tiny: MakeTiny) -> None:
    folder = make_tiny(f"Ernie{head}", "wordpiece", num_labels=3, **SIZES)
    assert_head_matches(folder, kernels, types=True)


def test_pairs_score_as_cross_encoder_does(make_tiny: MakeTiny) -> None:
    name = "ErnieForSequenceClassification"
    assert_scores_match(make_tiny(name, "wordpiece", num_labels=1, **SIZES))


@pytest.mark.parametrize("sizes", [{"use_task_id": False}, {"type_vocab_size": 2}])
def test_other_shapes_of_ernie(sizes: dict[str, int], make_tiny: MakeTiny) -> None:
    folder = make_tiny("ErnieModel", "wordpiece", **{**SIZES, **sizes})
    assert_head_matches(folder, "torch", types=True)
