"""Whole models of every encoder family against sentence-transformers: texts to vectors, pairs to
scores."""

from __future__ import annotations

from pathlib import Path

import pytest
from families import FAMILIES, family_of
from sentence import assert_scores_match, assert_vectors_match
from tiny import MakeTiny

from cenote.models.registry import ARCHITECTURES, model_info


def _names(head: str) -> list[str]:
    """The architectures with a head that transformers has, of families that read to both sides."""
    names = [f"{family}{head}" for family in FAMILIES if FAMILIES[family].form is None]
    known = [name for name in names if name in ARCHITECTURES]
    return [name for name in known if not model_info(name).causal]


def _save(architecture: str, make_tiny: MakeTiny, labels: int) -> Path:
    family = family_of(architecture)
    config = {**family.config, "num_labels": labels}
    return make_tiny(architecture, family.tokenizer, types=family.types, **config)


@pytest.mark.parametrize("architecture", _names("Model"))
def test_texts_give_the_vectors_of_sentence_transformers(
    architecture: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    assert_vectors_match(_save(architecture, make_tiny, 3), tmp_path, "auto")


@pytest.mark.parametrize("architecture", _names("ForSequenceClassification"))
def test_pairs_score_as_cross_encoder_does(architecture: str, make_tiny: MakeTiny) -> None:
    assert_scores_match(_save(architecture, make_tiny, 1))
