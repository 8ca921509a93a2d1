"""RoBERTa and its twins against transformers and sentence-transformers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sentence import assert_scores_match, assert_vectors_match
from tiny import MakeTiny, edit_config

HEADS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")


def test_a_masked_lm_with_pooling_metadata_serves_its_body(
    make_tiny: MakeTiny, tmp_path: Path
) -> None:
    body = make_tiny("RobertaForMaskedLM", "bpe", type_vocab_size=1)
    assert_vectors_match(body, tmp_path, "torch", "cls")


def test_texts_through_unigram_give_the_vectors_of_sentence_transformers(
    kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    body = make_tiny("XLMRobertaModel", "unigram", type_vocab_size=1)
    assert_vectors_match(body, tmp_path, kernels, "cls")


@pytest.mark.parametrize("activation", [None, "Identity", "Sigmoid"])
def test_xlm_roberta_rerankers_score_as_cross_encoder_does(
    activation: str | None, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    config = {"type_vocab_size": 1, "num_labels": 1}
    folder = make_tiny("XLMRobertaForSequenceClassification", "unigram", **config)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    if activation is not None:
        module = "linear" if activation == "Identity" else "activation"
        own = {"activation_fn": f"torch.nn.modules.{module}.{activation}", "version": "6.2.0"}
        edit_config(tmp_path, sentence_transformers=own)
    assert_scores_match(tmp_path)
