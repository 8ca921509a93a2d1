"""Nomic's BERT against transformers; its mixture of experts against the formula."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from heads import HEADS, Rows, assert_head_matches, reference_outputs, resave
from reference import Served
from safetensors.torch import load_file, save_file
from tiny import MakeTiny
from torch import Tensor
from torch.nn import functional as F

LONG = {"max_position_embeddings": 600, "initializer_range": 0.2}
HUB_NAMES = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
NO_BIAS = dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), False)


@pytest.mark.parametrize("head", HEADS)
def test_both_names_of_the_tensors_load(head: str, make_tiny: MakeTiny, tmp_path: Path) -> None:
    folder = make_tiny(f"NomicBert{head}", "wordpiece", num_labels=3)
    assert_head_matches(resave(folder, tmp_path), "torch")


def save_as_hub(folder: Path, other: Path, **changes: object) -> None:
    """A copy of a folder whose configuration has the hub repository's names."""
    shutil.copytree(folder, other, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_act"], config["rope_parameters"], config["head_dim"]
    renamed = {HUB_NAMES.get(key, key): value for key, value in config.items()}
    (other / "config.json").write_text(json.dumps({**renamed, **changes}))


def test_a_folder_of_the_hub_repository_loads_with_its_dynamic_scaling(
    make_tiny: MakeTiny, tmp_path: Path
) -> None:
    scaling = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}
    folder = make_tiny("NomicBertModel", "wordpiece", rope_parameters=scaling)
    hub = {"rotary_emb_base": 100, "rotary_scaling_factor": 2, "max_trained_positions": 66}
    save_as_hub(folder, tmp_path, activation_function="swiglu", n_positions=600, **hub, **NO_BIAS)
    reference = partial(reference_outputs, folder=folder)
    # Growing, since the reference keeps the frequencies of the longest sequence that it saw.
    lengths = (1, 7, 65, 66, 67, 67, 100, 600)
    assert_head_matches(tmp_path, "torch", lengths=lengths, reference=reference, max_model_len=600)


def mixture(served: Served, ids: Rows, types: Rows | None) -> list[Tensor]:
    """Two layers by the formulas, the second one's MLP a mixture of its two likeliest experts."""
    weights = load_file(served.config.path / "model.safetensors")

    def product(name: str, x: Tensor) -> Tensor:
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def normed(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (32,), weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    def turned(x: Tensor) -> Tensor:
        angle = torch.outer(torch.arange(x.shape[1]), 10000.0 ** -(torch.arange(0, 8, 2) / 8))
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def experts(at: str, x: Tensor) -> Tensor:
        shares = F.linear(x, weights[at + "router.layer.weight"]).softmax(-1)
        up = weights[at + "experts.mlp.w1"].view(4, 64, 32)
        down = weights[at + "experts.mlp.w2"].view(4, 64, 32)
        each = torch.einsum("tei,eih->teh", F.gelu(torch.einsum("th,eih->tei", x, up)), down)
        kept = shares.where(shares >= shares.topk(2).values[:, 1:], 0)
        return (kept[..., None] * each).sum(1) + weights[at + "experts.bias"]

    def run(row: list[int]) -> Tensor:
        x = weights["embeddings.word_embeddings.weight"][torch.tensor(row)]
        x = normed("emb_ln", x + weights["embeddings.token_type_embeddings.weight"][0])
        for at in ("encoder.layers.0.", "encoder.layers.1."):
            heads = product(at + "attn.Wqkv", x).view(len(row), 3, 4, 8).permute(1, 2, 0, 3)
            logits = turned(heads[0]) @ turned(heads[1]).transpose(1, 2) / 8**0.5
            context = (logits.softmax(-1) @ heads[2]).transpose(0, 1).flatten(1)
            x = normed(at + "norm1", x + product(at + "attn.out_proj", context))
            if at.endswith("1."):
                change = experts(at + "mlp.", x)
            else:
                change = product(at + "mlp.fc2", F.gelu(product(at + "mlp.fc1", x)))
            x = normed(at + "norm2", x + change)
        return x

    return [run(list(row)) for row in ids]


def test_v2_is_its_formulas(kernels: str, make_tiny: MakeTiny, tmp_path: Path) -> None:
    folder = make_tiny("NomicBertModel", "unigram", type_vocab_size=1)
    moe = {"moe_every_n_layers": 2, "num_experts": 4, "moe_top_k": 2}
    hub = {"activation_function": "gelu", "layer_norm_epsilon": 1e-5, "n_positions": 600}
    save_as_hub(folder, tmp_path, **hub, **moe)
    weights = load_file(folder / "model.safetensors")
    random = torch.Generator().manual_seed(0)
    shapes = {
        "0.mlp.fc1.weight": (64, 32),
        "0.mlp.fc1.bias": (64,),
        "0.mlp.fc2.bias": (32,),
        "1.mlp.router.layer.weight": (4, 32),
        "1.mlp.experts.mlp.w1": (4 * 64, 32),
        "1.mlp.experts.mlp.w2": (4 * 64, 32),
        "1.mlp.experts.bias": (32,),
        **{f"{i}.attn.{name}.bias": (n,) for i in (0, 1) for name, n in (("Wqkv", 96),)},
        **{f"{i}.attn.out_proj.bias": (32,) for i in (0, 1)},
    }
    gone = ("fc11", "fc12", "1.mlp.fc2")
    kept = {name: x for name, x in weights.items() if not any(part in name for part in gone)}
    made = {
        f"encoder.layers.{k}": torch.randn(v, generator=random) * 0.3 for k, v in shapes.items()
    }
    save_file({**kept, **made}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert_head_matches(tmp_path, kernels, reference=mixture, max_model_len=600)
