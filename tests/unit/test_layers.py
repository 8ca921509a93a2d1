"""Layers and models: what packing does to them, what they refuse, and what they never mix up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.config.rope import RopeConfig
from cenote.errors import InputTooLong, InvalidRequest, ModelLoadError
from cenote.kernels import backend
from cenote.kernels.attention import AttentionSpec
from cenote.layers.attention import SelfAttention
from cenote.layers.linear import Linear
from cenote.layers.norm import LayerNorm, RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.packing import WeightForm, pack_weights
from cenote.layers.rotary import Rotary
from cenote.models.blocks import PreNormLayer
from cenote.models.load import compute_dtype, load_model, serving_class
from cenote.models.registry import ARCHITECTURES, model_class, model_info

CPU = torch.device("cpu")
FLOAT32 = WeightForm(torch.float32)


@pytest.fixture(autouse=True)
def configured(kernels: str) -> Iterator[None]:
    backend.configure(kernels, CPU, torch.float32, threads=1)  # type: ignore[arg-type]
    yield
    backend.configure("torch", CPU, torch.float32)


def batch_of(lens: list[int], token: int = 5) -> PackedBatch:
    return PackedBatch(
        input_ids=torch.full((sum(lens),), token, dtype=torch.int32),
        positions=torch.cat([torch.arange(n) for n in lens]).int(),
        cu_seqlens=torch.tensor([0, *lens]).cumsum(0).int(),
        seq_lens=lens,
    )


def fill(module: nn.Module) -> nn.Module:
    """Random parameters, reproducibly."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
    return module.requires_grad_(False)


def config_of(folder: Path, **settings: Any) -> ModelConfig:
    return load_model_config(folder, name="m", revision="", engine=EngineConfig(**settings))


def load(folder: Path, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    engine = EngineConfig(threads=1, **settings)
    config = load_model_config(folder, name="m", revision="", engine=engine)
    return load_model(config, dtype=dtype, device=CPU, engine=engine)


def test_packing_lets_the_loaded_weights_go() -> None:
    layer = fill(Linear(16, 24))
    x = torch.randn(5, 16)
    expected = F.linear(x, layer.weight, layer.bias)
    pack_weights(layer, FLOAT32)
    assert not list(layer.parameters())
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)


def test_a_head_stays_in_float32_whatever_the_model_computes_in() -> None:
    head, body = fill(Linear(16, 24, dtype=torch.float32)), fill(Linear(16, 24))
    for layer in (head, body):
        pack_weights(layer, WeightForm(torch.bfloat16))
    x = torch.randn(5, 16)
    assert head(x).dtype == torch.float32
    assert body(x).dtype == torch.bfloat16


def test_int8_reads_the_full_numbers_and_needs_the_native_kernels(kernels: str) -> None:
    form = WeightForm(torch.bfloat16, int8=True)
    assert form.load_dtype == torch.float32
    layer = fill(Linear(64, 32))
    x = torch.randn(5, 64)
    expected = F.linear(x, layer.weight, layer.bias)
    if kernels == "torch":
        with pytest.raises(ModelLoadError, match="native kernels"):
            pack_weights(layer, form)
    else:
        pack_weights(layer, form)
        found = layer(x, out_dtype=torch.float32)
        assert torch.cosine_similarity(found, expected, dim=1).min() > 0.999


def naive_pre_norm(
    layer: PreNormLayer, x: Tensor, rotary: Rotary, spec: AttentionSpec, gate: str
) -> Tensor:
    """One sequence through the layer, from its parameters."""

    def normed(norm: Any, x: Tensor) -> Tensor:
        if isinstance(norm, LayerNorm):
            return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
        return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)

    qkv = F.linear(normed(layer.attention_norm, x), layer.attention.qkv.weight)
    length = x.shape[0]
    q, k, v = (part.view(length, -1, spec.head_dim) for part in qkv.chunk(3, dim=1))

    def turned(heads: Tensor) -> Tensor:
        half = spec.head_dim // 2
        cos, sin = rotary.cos[:length, None], rotary.sin[:length, None]
        a, b = heads[..., :half], heads[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    logits = torch.einsum("ihd,jhd->hij", turned(q), turned(k)) * spec.scale
    context = torch.einsum("hij,jhd->ihd", logits.softmax(-1), v).flatten(1)
    x = x + F.linear(context, layer.attention.out.weight)
    up = F.linear(normed(layer.mlp_norm, x), layer.mlp.up.weight)
    if gate == "none":
        hidden = F.gelu(up)
    else:
        first, second = up.chunk(2, dim=1)
        hidden = F.gelu(first) * second if gate == "first" else first * F.gelu(second)
    return x + F.linear(hidden, layer.mlp.down.weight)


@pytest.mark.parametrize("gate", ["none", "first", "second"])
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_a_pre_norm_layer_with_rotary_is_its_formula(gate: Any, norm: Any, tiny_bert: Path) -> None:
    config = replace(config_of(tiny_bert), hidden_act="gelu_erf")
    spec = AttentionSpec(4, 4, 8, 8**-0.5)
    rotary = Rotary(8, 32, RopeConfig())
    layer = fill(PreNormLayer(config, spec, norm=norm, gate=gate, bias=False, rotary=rotary))
    assert isinstance(layer, PreNormLayer)
    lens = [3, 7, 1, 7]
    x = torch.randn(sum(lens), 32)
    expected = [naive_pre_norm(layer, part, rotary, spec, gate) for part in x.split(lens)]
    pack_weights(layer, FLOAT32)
    found = layer(x, batch_of(lens))
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_fused_projection_of_grouped_heads_has_their_sizes() -> None:
    attention = SelfAttention(32, AttentionSpec(8, 2, 8, 1.0), bias=False, out_bias=True)
    assert attention.qkv.weight.shape == (8 * 8 + 2 * 2 * 8, 32)
    assert attention.qkv.bias is None
    assert attention.out.bias is not None


def test_a_text_longer_than_the_positions_is_refused_by_name(tiny_bert: Path, kernels: str) -> None:
    model = load(tiny_bert, kernels=kernels)
    assert model(batch_of([128])).shape == (128, 32)
    with pytest.raises(InputTooLong, match="128 tokens"):
        model(batch_of([3, 129]))


def test_a_token_outside_the_vocabulary_is_refused(tiny_bert: Path, kernels: str) -> None:
    with pytest.raises(InvalidRequest, match="outside"):
        load(tiny_bert, kernels=kernels)(batch_of([3], token=30522))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_masked_as_a_key_changes_no_other_row(
    dtype: torch.dtype, tiny_bert: Path, kernels: str
) -> None:
    model = load(tiny_bert, dtype, kernels=kernels)
    mask = torch.ones(9, dtype=torch.uint8)
    mask[6:] = 0
    masked = model(replace(batch_of([9]), key_mask=mask))
    cut = model(batch_of([6]))
    assert (masked[:6] - cut).abs().max() < (1e-5 if dtype == torch.float32 else 0.05)
    assert masked[6:].isfinite().all()


def test_float16_on_a_cpu_computes_in_float32(tiny_bert: Path, kernels: str) -> None:
    assert compute_dtype(torch.float16, torch.device("cuda")) == torch.float16
    half, full = load(tiny_bert, torch.float16, kernels=kernels), load(tiny_bert, kernels=kernels)
    assert torch.equal(half(batch_of([5])), full(batch_of([5])))


def test_an_unknown_architecture_names_the_known_ones(tiny_bert: Path) -> None:
    config = replace(config_of(tiny_bert), architecture="NobodysModel")
    with pytest.raises(ModelLoadError, match=r"(?s)NobodysModel.*BertModel"):
        serving_class(config)


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_architecture_of_the_registry_exists(architecture: str) -> None:
    assert model_info(architecture) is model_class(architecture).info


def test_a_masked_lm_with_pooling_metadata_serves_its_body(make_tiny_bert: Any) -> None:
    config = config_of(make_tiny_bert("BertForMaskedLM"))
    assert serving_class(config).__name__ == "BertForMaskedLM"
    pooled = replace(config, pooler=replace(config.pooler, declared=True, sparse=None))
    assert serving_class(pooled).__name__ == "BertModel"


def test_building_leaves_the_default_dtype_alone(tiny_bert: Path, tmp_path: Path) -> None:
    config = replace(config_of(tiny_bert), path=tmp_path)
    with pytest.raises(ModelLoadError):
        load_model(config, dtype=torch.bfloat16, device=CPU, engine=EngineConfig(kernels="torch"))
    assert torch.get_default_dtype() == torch.float32


def test_rotary_tables_are_made_even_while_parameters_have_no_storage() -> None:
    with torch.device("meta"):
        rotary = Rotary(8, 16, RopeConfig(500.0))
    assert rotary.cos[3, 1].item() == pytest.approx(math.cos(3 * 500.0 ** (-2 / 8)), abs=1e-6)
