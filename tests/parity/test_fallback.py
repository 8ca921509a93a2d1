"""Families that fall back to transformers, against transformers: heads, vectors, any batch."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from heads import HEADS, Rows, assert_head_matches, random_ids
from reference import Served, assert_matches_reference, serve
from safetensors.torch import load_file, save_file
from sentence import assert_scores_match, assert_vectors_match
from tiny import MakeTiny, edit_config
from torch import Tensor
from torch.nn import functional as F

from cenote import LLM
from cenote.errors import ModelLoadError

SIZES: dict[str, dict[str, Any]] = {
    "SqueezeBert": {"embedding_size": 32},
    "ConvBert": {"embedding_size": 32, "conv_kernel_size": 3, "head_ratio": 2},
    "RoFormer": {"embedding_size": 32},
    "MobileBert": {
        "embedding_size": 32,
        "intra_bottleneck_size": 32,
        "initializer_range": 0.1,
        "num_feedforward_networks": 2,
    },
    "Nystromformer": {"segment_means_seq_len": 64, "num_landmarks": 64},
    "RemBert": {"input_embedding_size": 32, "output_embedding_size": 32},
    "MegatronBert": {},
    "FNet": {"tpu_short_seq_length": 64},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Mixtral": {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 3},
}


T5: dict[str, Any] = {
    "d_model": 32,
    "d_kv": 8,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 64,
    "decoder_start_token_id": 1,
}
BART: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "init_std": 0.3,
    "decoder_start_token_id": 2,
}
# Padding changes the results of these: they run one length at a time.
EXACT = {"ConvBert", "Nystromformer", "FNet"}

CASES = [
    *((family, head) for family in ("SqueezeBert", "ConvBert", "RemBert") for head in HEADS),
    *((family, "Model") for family in ("RoFormer", "MegatronBert")),
    ("MobileBert", "ForMaskedLM"),
    ("Nystromformer", "ForSequenceClassification"),
]


@pytest.mark.parametrize(("family", "head"), CASES)
def test_heads_are_those_of_transformers(family: str, head: str, make_tiny: MakeTiny) -> None:
    folder = make_tiny(f"{family}{head}", "wordpiece", num_labels=3, types=True, **SIZES[family])
    assert_head_matches(folder, "torch", types=True)


def test_a_network_without_a_mask_never_meets_padding(make_tiny: MakeTiny) -> None:
    folder = make_tiny("FNetModel", "wordpiece", types=True, **SIZES["FNet"])
    served = serve(folder, "torch")
    ids = random_ids(served)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        rows = [model(torch.tensor([row])).last_hidden_state[0] for row in ids]
    expected = [F.normalize(row.mean(0), dim=-1) for row in rows]
    assert_matches_reference(served, "embed", ids, expected)
    with pytest.raises(ModelLoadError, match=r"FNetModel can't be run .* in torch.bfloat16"):
        serve(folder, "torch", torch.bfloat16)


def encoder_outputs(served: Served, ids: Rows, types: Rows | None) -> list[Tensor]:
    model = transformers.T5EncoderModel.from_pretrained(served.config.path).eval()
    with torch.inference_mode():
        return [model(torch.tensor([row])).last_hidden_state[0] for row in ids]


@pytest.mark.parametrize("architecture", ["T5EncoderModel", "T5ForConditionalGeneration"])
def test_the_encoder_of_t5(architecture: str, make_tiny: MakeTiny) -> None:
    folder = make_tiny(architecture, "unigram", **T5)
    assert_head_matches(folder, "torch", reference=encoder_outputs)


def test_sentence_t5_is_that_of_sentence_transformers(make_tiny: MakeTiny, tmp_path: Path) -> None:
    assert_vectors_match(make_tiny("T5EncoderModel", "unigram", **T5), tmp_path / "st", "torch")


def test_pairs_score_as_cross_encoder_does(make_tiny: MakeTiny) -> None:
    name, sizes = "RemBertForSequenceClassification", SIZES["RemBert"]
    assert_scores_match(make_tiny(name, "wordpiece", num_labels=1, types=True, **sizes))


def test_bart_classifies_the_row_of_its_last_token(make_tiny: MakeTiny) -> None:
    folder = make_tiny("BartForSequenceClassification", "bpe", num_labels=3, **BART)
    served = serve(folder, "torch")
    ids = [[0, *row, 2] for row in random_ids(served, [1, 2, 7, 33, 7])]
    model = transformers.BartForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        expected = [model(torch.tensor([row])).logits[0].softmax(-1) for row in ids]
    assert_matches_reference(served, "classify", ids, expected)


@pytest.mark.parametrize("family", ["Bloom", "Mixtral"])
def test_decoders_embed_and_classify_only(family: str, make_tiny: MakeTiny) -> None:
    folder = make_tiny(f"{family}ForCausalLM", "bpe", **SIZES[family])
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with LLM(str(folder), dtype="float32", threads=1) as llm:
        assert llm.supported_tasks == ("embed",)
        prompts = [[5, 6, 7], list(range(5, 40)), [9]]
        vectors = [torch.from_numpy(item.embedding) for item in llm.embed(prompts)]
    with torch.inference_mode():
        for ours, row in zip(vectors, prompts, strict=True):
            theirs = F.normalize(model(torch.tensor([row])).last_hidden_state[0, -1], dim=-1)
            assert (ours - theirs).abs().max() <= 1e-5
    folder = make_tiny(f"{family}ForSequenceClassification", "bpe", num_labels=3, **SIZES[family])
    served = serve(folder, "torch")
    assert served.model.causal
    ids = random_ids(served, [1, 2, 7, 33])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        expected = [model(torch.tensor([row])).logits[0].softmax(-1) for row in ids]
    assert_matches_reference(served, "classify", ids, expected)


def test_the_log_says_that_it_is_the_fallback(
    make_tiny: MakeTiny, caplog: pytest.LogCaptureFixture
) -> None:
    for family in ("SqueezeBert", "ConvBert"):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "cenote"):
            served = serve(make_tiny(f"{family}Model", "wordpiece", **SIZES[family]), "torch")
        assert f"{family}Model falls back to transformers" in caplog.text
        assert served.model.exact == (family in EXACT)


def test_a_missing_and_an_extra_tensor_are_named(make_tiny: MakeTiny, tmp_path: Path) -> None:
    folder = make_tiny("RoFormerForTokenClassification", "wordpiece", **SIZES["RoFormer"])
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.bias"]
    save_file({**weights, "more": torch.zeros(2)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelLoadError) as raised:
        serve(tmp_path, "torch")
    assert "missing parameter: classifier.bias" in str(raised.value)
    assert "unused tensor: more" in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"adapters": ("one=folder",)}, "adapters needs an implementation of our own"),
        ({"quantization": "int8", "kernels": "native"}, "quantization needs an implementation"),
    ],
)
def test_settings_that_need_our_own_layers_are_refused(
    settings: dict[str, Any], words: str, make_tiny: MakeTiny
) -> None:
    folder = make_tiny("RoFormerModel", "wordpiece", **SIZES["RoFormer"])
    with pytest.raises(ModelLoadError, match=words):
        LLM(str(folder), **settings)


@pytest.mark.parametrize(
    ("field", "value"), [("use_cache", "x"), ("rotary_value", None), ("num_labels", None)]
)
def test_a_field_that_the_library_refuses_is_named(
    field: str, value: Any, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    folder = make_tiny("RoFormerModel", "wordpiece", **SIZES["RoFormer"])
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    edit_config(tmp_path, **{field: value})
    with pytest.raises(ModelLoadError, match="transformers can't load"):
        serve(tmp_path, "torch")


def test_without_the_library_the_error_says_how_to_install_it(
    make_tiny: MakeTiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny("RoFormerModel", "wordpiece", **SIZES["RoFormer"])
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelLoadError, match=r"pip install 'cenote\[reference\]'"):
        serve(folder, "torch")


@pytest.mark.parametrize("architecture", ["BartModel", "RoFormerForQuestionAnswering"])
def test_what_gives_no_pooling_task_is_refused(architecture: str, make_tiny: MakeTiny) -> None:
    sizes = BART if architecture.startswith("Bart") else SIZES["RoFormer"]
    with pytest.raises(ModelLoadError, match=f"{architecture}.*(no vectors|can be served)"):
        serve(make_tiny(architecture, "bpe", **sizes), "torch")
