"""Which folders are rerankers, and what is refused instead of scored wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.config.reranker import RerankerConfig
from cenote.errors import ModelLoadError
from cenote.loader.token_head import read_token_head
from cenote.models.llama import BODY_RULES
from cenote.processors.templates import load_score_template

SIZES = {
    "vocab_size": 4,
    "hidden_size": 2,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 4,
    "max_position_embeddings": 64,
}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
LOGITS = [
    {"type": "sentence_transformers.cross_encoder.modules.LogitScore", "path": "1_LogitScore"}
]
POOLING = [{"type": "sentence_transformers.models.Pooling", "path": ""}]


def config_of(
    folder: Path, hf: dict[str, Any], *, name: str = "m", modules: Any = None, **settings: Any
) -> ModelConfig:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SIZES, **hf}))
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    return load_model_config(folder, name=name, revision="", engine=EngineConfig(**settings))


def test_a_name_tells_a_reranker(tmp_path: Path) -> None:
    expected = RerankerConfig(("no", "yes"), True, "qwen3")
    by_folder = config_of(tmp_path / "Qwen3-Reranker-4B", QWEN3)
    by_name = config_of(tmp_path / "a", QWEN3, name="Qwen/Qwen3-Reranker-8B")
    cached = tmp_path / "models--Qwen--Qwen3-Reranker-0.6B" / "snapshots" / "abc"
    assert by_folder.reranker == by_name.reranker == expected
    assert config_of(cached, QWEN3).reranker == expected
    assert by_name.architecture == "Qwen3ForSequenceClassification"
    assert by_name.labels == ("yes",)


def test_a_model_card_tells_what_a_tuned_one_was_made_from(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nbase_model: Qwen/Qwen3-Reranker-0.6B\n---\n# Mine\n")
    assert config_of(tmp_path, QWEN3).reranker is not None
    (tmp_path / "README.md").write_text("# Unlike Qwen3-Reranker\n")
    assert config_of(tmp_path, QWEN3).reranker is None


@pytest.mark.parametrize(
    ("hf", "name", "modules", "settings"),
    [
        (QWEN3, "Qwen/Qwen3-Embedding-0.6B", None, {}),
        (QWEN3, "Qwen/Qwen3-Reranker-0.6B", None, {"reranker": "off"}),
        (QWEN3, "me/embedder-of-Qwen3-Reranker", POOLING, {}),
        (
            {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
            "qwen3-reranker",
            None,
            {},
        ),
    ],
)
def test_others_are_none(
    hf: dict[str, Any], name: str, modules: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = config_of(tmp_path, hf, name=name, modules=modules, **settings)
    assert config.reranker is None
    assert config.labels == ()


def test_a_converted_checkpoint_keeps_its_head_and_gets_the_prompt(tmp_path: Path) -> None:
    hf = {**QWEN3, "architectures": ["Qwen3ForSequenceClassification"], "num_labels": 1}
    config = config_of(tmp_path / "Qwen3-Reranker-0.6B-seq-cls", hf)
    assert config.reranker == RerankerConfig(template="qwen3")
    template = load_score_template(config, EngineConfig())
    assert template is not None
    assert template.complete
    end = "<Document>: d<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert template.render("q", "d").endswith(end)


def test_a_both_sided_llama_gets_its_own_prompt(tmp_path: Path) -> None:
    hf = {**LLAMA, "architectures": ["LlamaBidirectionalForSequenceClassification"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    config = config_of(tmp_path, {**hf, "num_labels": 1}, name="nvidia/llama-nemotron-rerank-1b-v2")
    template = load_score_template(config, EngineConfig())
    assert template is not None
    assert template.render("q", "d") == "<s>question:q \n \n passage:d"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classifier_from_token": "yes"}, "must be a list of tokens"),
        ({"classifier_from_token": ["yes"], "method": "other"}, "method 'other' is unknown"),
        ({"classifier_from_token": ["yes"], "method": "from_2_way_softmax"}, "needs two tokens"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=message):
        config_of(tmp_path, {**QWEN3, **changes})


def test_an_unknown_prompt_is_asked_for(tmp_path: Path) -> None:
    config = config_of(tmp_path, {**QWEN3, "classifier_from_token": ["a", "b", "c"]})
    assert config.num_labels == 3
    with pytest.raises(ModelLoadError, match="score_template"):
        load_score_template(config, EngineConfig())


def test_a_chat_template_that_drops_a_side_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1_LogitScore").mkdir()
    ids = {"true_token_id": 3, "false_token_id": 2}
    (tmp_path / "1_LogitScore" / "config.json").write_text(json.dumps(ids))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    config = config_of(tmp_path, QWEN3, modules=LOGITS)
    assert config.reranker == RerankerConfig((2, 3), True, "own")
    with pytest.raises(ModelLoadError, match="roles query and document"):
        load_score_template(config, EngineConfig())


def test_the_head_is_the_difference_of_two_rows_in_float32(tmp_path: Path) -> None:
    config = config_of(tmp_path, {**QWEN3, "tie_word_embeddings": False})
    head = torch.tensor([[1, 2], [3, 5], [0, 1], [9, 9]]).bfloat16()
    words = torch.ones(4, 2).bfloat16()
    tensors = {"lm_head.weight": head, "model.embed_tokens.weight": words}
    save_file(tensors, tmp_path / "model.safetensors")
    Tokenizer(models.WordLevel({"no": 0, "yes": 1, "b": 2, "c": 3}, unk_token="b")).save(
        str(tmp_path / "tokenizer.json")
    )
    made = read_token_head(config, RerankerConfig(("no", "yes"), True), BODY_RULES)
    assert made.dtype == torch.float32
    assert made.tolist() == [[2.0, 3.0]]
    both = read_token_head(config, RerankerConfig((0, 3)), BODY_RULES)
    assert both.tolist() == [[1.0, 2.0], [9.0, 9.0]]
    tied = config_of(tmp_path, {**QWEN3, "tie_word_embeddings": True})
    assert read_token_head(tied, RerankerConfig((0,)), BODY_RULES).tolist() == [[1.0, 1.0]]
    with pytest.raises(ModelLoadError, match="'maybe'"):
        read_token_head(config, RerankerConfig(("maybe",)), BODY_RULES)
    with pytest.raises(ModelLoadError, match="of 4 ids"):
        read_token_head(config, RerankerConfig((4,)), BODY_RULES)
