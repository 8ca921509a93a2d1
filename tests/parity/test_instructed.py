"""Embedders whose instruction takes no part in pooling: NV-Embed and GritLM against their papers'
formulas, decoders with `include_prompt: false` against sentence-transformers."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from heads import Rows
from reference import TEXTS, Served, serve
from safetensors.torch import load_file, save_file
from test_decoders import SHARED
from tiny import MakeTiny, edit_config
from tokenizers import Tokenizer, processors
from torch import Tensor
from torch.nn import functional as F

from cenote import LLM
from cenote.cli.references import kind_of
from cenote.errors import InvalidRequest, ModelLoadError

TASK = "Instruct: find what answers\nQuery: "
HEADS, LATENTS, HEAD_DIM = 2, 5, 12
NAMED = {
    "latents": (LATENTS, 32),
    "cross_attend_blocks.0.norm.weight": (32,),
    "cross_attend_blocks.0.norm.bias": (32,),
    "cross_attend_blocks.0.norm_context.weight": (32,),
    "cross_attend_blocks.0.norm_context.bias": (32,),
    "cross_attend_blocks.0.fn.to_q.weight": (HEADS * HEAD_DIM, 32),
    "cross_attend_blocks.0.fn.to_kv.weight": (2 * HEADS * HEAD_DIM, 32),
    "cross_attend_blocks.0.fn.to_out.weight": (32, HEADS * HEAD_DIM),
    "cross_attend_blocks.1.norm.weight": (32,),
    "cross_attend_blocks.1.norm.bias": (32,),
    "cross_attend_blocks.1.fn.net.0.weight": (256, 32),
    "cross_attend_blocks.1.fn.net.0.bias": (256,),
    "cross_attend_blocks.1.fn.net.2.weight": (32, 128),
    "cross_attend_blocks.1.fn.net.2.bias": (32,),
}


def mistral(make_tiny: MakeTiny, folder: Path) -> Path:
    """A random Mistral; its tokenizer puts BOS before a text and nothing after it."""
    shutil.copytree(make_tiny("MistralModel", "bpe", **SHARED, sliding_window=9), folder)
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    tokenizer.save(path)
    return folder


@cache
def exact(folder: Path) -> Any:
    return transformers.AutoModel.from_pretrained(folder, dtype=torch.float64).eval()


def both_sided(folder: Path, ids: Sequence[int]) -> Tensor:
    """Hidden states of transformers' Mistral without any mask, in float64."""
    nothing = torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)
    with torch.inference_mode():
        rows: Tensor = exact(folder)(torch.tensor([ids]), attention_mask=nothing).last_hidden_state[
            0
        ]
    return rows


def vector(rows: Tensor, skipped: int) -> Tensor:
    return F.normalize(rows[skipped:].mean(0), dim=-1)


def latent_attention(rows: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    """Section 3.2: queries are the tokens, keys and values the latents; then a gated MLP."""
    t = {name.removeprefix("cross_attend_blocks."): w.double() for name, w in tensors.items()}
    x = F.layer_norm(rows, (32,), t["0.norm.weight"], t["0.norm.bias"])
    context = F.layer_norm(
        t["latents"], (32,), t["0.norm_context.weight"], t["0.norm_context.bias"]
    )
    q = x @ t["0.fn.to_q.weight"].T
    k, v = (context @ t["0.fn.to_kv.weight"].T).chunk(2, dim=-1)
    made = []
    for head in range(HEADS):
        at = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        weights = (q[:, at] @ k[:, at].T / math.sqrt(HEAD_DIM)).softmax(-1)
        made.append(weights @ v[:, at])
    rows = rows + torch.cat(made, dim=-1) @ t["0.fn.to_out.weight"].T
    x = F.layer_norm(rows, (32,), t["1.norm.weight"], t["1.norm.bias"])
    x, gate = (x @ t["1.fn.net.0.weight"].T + t["1.fn.net.0.bias"]).chunk(2, dim=-1)
    return rows + (x * F.gelu(gate)) @ t["1.fn.net.2.weight"].T + t["1.fn.net.2.bias"]


def latents() -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(0)
    return {name: torch.randn(size, generator=made) * 0.3 for name, size in NAMED.items()}


def save_nv_embed(body: Path, folder: Path, architecture: str) -> None:
    """NV-Embed's form of a Mistral."""
    shutil.copytree(body, folder, dirs_exist_ok=True)
    whole = {f"embedding_model.{k}": v for k, v in load_file(body / "model.safetensors").items()}
    whole |= {f"latent_attention_model.{name}": tensor for name, tensor in latents().items()}
    save_file(whole, folder / "model.safetensors")
    text = transformers.AutoConfig.from_pretrained(body).to_dict()
    sizes = {
        "num_latents_value": LATENTS,
        "num_cross_heads": HEADS,
        "cross_dim_head": HEAD_DIM,
        "hidden_dim": 32,
        "latent_dim": 32,
    }
    own: dict[str, Any] = {"architectures": [architecture], "model_type": "nvembed"}
    own |= {"text_config": text, "latent_attention_config": sizes, "hidden_size": 32}
    own |= {"is_mask_instruction": True, "add_eos": True}
    (folder / "config.json").write_text(json.dumps(own))


def latent_rows(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    return [latent_attention(both_sided(source, row), latents()).float() for row in ids]


@pytest.fixture
def nv_embed(make_tiny: MakeTiny, tmp_path: Path) -> tuple[Path, Path, dict[str, Tensor]]:
    """NV-Embed's form of a Mistral, that Mistral, and the tensors of its latents."""
    body, folder = mistral(make_tiny, tmp_path / "body"), tmp_path / "model"
    save_nv_embed(body, folder, "NVEmbedModel")
    return folder, body, latents()


@pytest.mark.parametrize(
    ("prompt", "dtype"), [("", "float32"), (TASK, "float32"), ("", "bfloat16")]
)
def test_nv_embed_pools_what_its_latents_make_of_the_text(
    prompt: str, dtype: Any, kernels: str, nv_embed: tuple[Path, Path, dict[str, Tensor]]
) -> None:
    folder, body, tensors = nv_embed
    tokenizer = transformers.AutoTokenizer.from_pretrained(body)
    skipped = len(tokenizer(prompt).input_ids) if prompt else 0
    settings: dict[str, Any] = {"kernels": kernels, "threads": 1, "max_model_len": 200}
    with LLM(str(folder), dtype=dtype, **settings) as llm:
        ours = [item.embedding for item in llm.embed(list(TEXTS), prompt=prompt)]
    for text, found in zip(TEXTS, ours, strict=True):
        ids = tokenizer(prompt + text + "</s>").input_ids
        expected = vector(latent_attention(both_sided(body, ids), tensors), skipped)
        if dtype == "float32":
            np.testing.assert_allclose(found, expected, atol=1e-5)
        assert found @ expected.float().numpy() >= 0.9995


def test_latents_of_another_width_are_refused(
    nv_embed: tuple[Path, Path, dict[str, Tensor]],
) -> None:
    folder = nv_embed[0]
    edit_config(folder, latent_attention_config={"hidden_dim": 64})
    with pytest.raises(ModelLoadError, match="hidden_dim must be the width of the model, 32"):
        serve(folder, "torch")


@pytest.mark.parametrize("form", ["code", "name"])
def test_gritlm_pools_the_texts_own_tokens(
    form: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    folder = mistral(make_tiny, tmp_path / "model")
    code = {"AutoModel": "GritLM/GritLM-7B--modeling_gritlm7b.MistralModel"}
    known: dict[str, Any] = {"architectures": ["MistralForCausalLM"], "auto_map": code}
    expected = {}
    asked = "<|user|>\nFind it\n<|embed|>\n"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for prompt in ("<|embed|>\n", asked):
        skipped = len(tokenizer(prompt).input_ids)
        rows = [both_sided(folder, tokenizer(prompt + text).input_ids) for text in TEXTS]
        expected[prompt] = torch.stack([vector(item, skipped) for item in rows])
    edit_config(folder, **(known if form == "code" else {"architectures": ["GritLM"]}))
    settings: dict[str, Any] = {"kernels": kernels, "threads": 1, "max_model_len": 200}
    with LLM(str(folder), dtype="float32", **settings) as llm:
        plain = llm.embed(list(TEXTS))
        told = llm.embed(list(TEXTS), prompt=asked)
        brought = llm.embed([asked + text for text in TEXTS])
        inside, same = llm.embed(["a <|embed|>\nb", "<|embed|>\na <|embed|>\nb"])
        score = llm.score("a", "how do I reset my password?")[0].score
    for found, prompt in ((plain, "<|embed|>\n"), (told, asked), (brought, asked)):
        ours = np.stack([item.embedding for item in found])
        np.testing.assert_allclose(ours, expected[prompt], atol=1e-5)
    # Within a text the mark is a word like any other.
    np.testing.assert_allclose(inside.embedding, same.embedding, atol=1e-6)
    own = expected["<|embed|>\n"]
    assert score == pytest.approx(float(own[0] @ own[1]), abs=1e-5)


def test_verify_says_that_it_has_no_reference(make_tiny: MakeTiny, tmp_path: Path) -> None:
    folder = mistral(make_tiny, tmp_path / "model")
    edit_config(folder, architectures=["GritLM"])
    with (
        LLM(str(folder), dtype="float32", threads=1) as llm,
        pytest.raises(InvalidRequest, match="nothing to compare GritLM with"),
    ):
        kind_of(llm)


@pytest.mark.parametrize("mode", ["mean", "lasttoken", "weightedmean"])
def test_a_decoders_prompt_is_left_out_also_where_it_runs_in_parts(
    mode: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    transformer = modules.Transformer(str(mistral(make_tiny, tmp_path / "body")))
    pooling = modules.Pooling(32, pooling_mode=mode, include_prompt=False)
    folder = str(tmp_path / "model")
    reference = SentenceTransformer(
        modules=[transformer, pooling, modules.Normalize()], prompts={"q": TASK}, device="cpu"
    )
    reference.save(folder)
    # A text that melts into the prompt's last token is a zero vector there; here one row is left.
    texts = list(TEXTS[1:])
    expected = reference.encode(texts, prompt_name="q", batch_size=1)
    for budget in (2048, 7):
        settings: dict[str, Any] = {"kernels": kernels, "max_num_batched_tokens": budget}
        with LLM(folder, dtype="float32", threads=1, **settings) as llm:
            found = [
                item.embedding
                for item in llm.embed(texts, prompt_name="q", truncate_prompt_tokens=-1)
            ]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_instructor_is_known_by_its_name(make_tiny: MakeTiny, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    transformer = modules.Transformer(str(make_tiny("T5EncoderModel", "unigram", **t5)))
    reference = SentenceTransformer(modules=[transformer, modules.Pooling(32)], device="cpu")
    folder = tmp_path / "hkunlp" / "instructor-base"
    reference.save(str(folder))
    assert serve(folder, "torch").config.pooler.include_prompt
    reference.set_pooling_include_prompt(False)
    texts = list(TEXTS[1:])
    expected = reference.encode(texts, prompt=TASK, batch_size=1)
    with LLM(str(folder), dtype="float32", threads=1) as llm:
        found = [
            item.embedding for item in llm.embed(texts, prompt=TASK, truncate_prompt_tokens=-1)
        ]
    np.testing.assert_allclose(found, expected, atol=1e-5)
