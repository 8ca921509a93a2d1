"""JinaBERT v2 against its papers' formulas: both forms of its MLP, and its slopes."""

from __future__ import annotations

from pathlib import Path

import pytest
from heads import HEADS, assert_head_matches
from jina_bert_formulas import NORMED, PLAIN, formulas, save_jina
from tiny import MakeTiny, edit_config

from cenote.models.jina_bert import alibi_slopes


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("variant", ["plain", "normed"])
def test_jina_bert_is_its_formulas(
    head: str, variant: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    bert = make_tiny(f"Bert{head}", "wordpiece", types=True, num_labels=3, initializer_range=0.2)
    code = "jinaai/jina-bert-v2-qk-post-norm" if variant == "normed" else "jinaai/jina-bert"
    shapes = NORMED if variant == "normed" else PLAIN
    more = {"auto_map": {"AutoModel": f"{code}--modeling_bert.JinaBertModel"}}
    save_jina(bert, tmp_path, f"JinaBert{head}", shapes, max_position_embeddings=600, **more)
    assert_head_matches(tmp_path, kernels, types=True, reference=formulas, max_model_len=600)


def test_an_embedding_model_saved_as_masked_lm_serves_its_body(
    make_tiny: MakeTiny, tmp_path: Path
) -> None:
    bert = make_tiny("BertModel", "wordpiece", initializer_range=0.2)
    save_jina(bert, tmp_path, "JinaBertModel", emb_pooler="mean")
    edit_config(tmp_path, architectures=["JinaBertForMaskedLM"])
    assert_head_matches(tmp_path, "torch", reference=formulas)


def test_slopes_of_head_counts_between_powers_of_two_are_the_papers() -> None:
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(12) == [2.0**-i for i in range(1, 9)] + [
        2.0 ** -(i + 0.5) for i in range(4)
    ]
