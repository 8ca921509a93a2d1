"""Rotary settings and frequencies: each kind against transformers, and lengths that stretch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from cenote.config.rope import RopeConfig, rope_config
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.layers.frequencies import frequencies, plain
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary

TRAINED = {"original_max_position_embeddings": 8}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

LONG = {
    "short_factor": [1.0 + 0.1 * i for i in range(16)],
    "long_factor": [1.0 + 0.5 * i for i in range(16)],
}


def batch_of(*lens: int) -> PackedBatch:
    return PackedBatch(
        input_ids=torch.zeros(sum(lens), dtype=torch.int32),
        positions=torch.cat([torch.arange(n) for n in lens]).int(),
        cu_seqlens=torch.tensor([0, *lens]).cumsum(0).int(),
        seq_lens=list(lens),
    )


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 3.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "llama3", "factor": 8.0, **LLAMA3},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.4},
        {"rope_type": "yarn", "factor": 2.0, "beta_fast": 8, "attention_factor": 0.9},
        {"rope_type": "yarn", "factor": 2.0, "truncate": False},
        {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
        {"rope_type": "longrope", **LONG},
        {"rope_type": "longrope", **LONG, "factor": 3.0, "original_max_position_embeddings": 32},
        {"rope_type": "longrope", **LONG, "attention_factor": 1.7},
    ],
)
@pytest.mark.parametrize("length", [16, 64, 100])
def test_scaled_frequencies_are_those_of_transformers(scaling: dict[str, Any], length: int) -> None:
    parameters = {"rope_theta": 5000.0, **scaling}
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=64,
        rope_parameters=dict(parameters),
    )
    expected, scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu", seq_len=length)
    rope = rope_config({"rope_parameters": parameters, "max_position_embeddings": 64}, base=1.0)
    found, found_scale = frequencies(rope, int(32 * rope.fraction), length)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    assert found_scale == pytest.approx(scale)


def test_ntk_scaling_follows_its_formulas() -> None:
    old = {"rope_theta": 100.0, "rope_scaling": {"type": "ntk", "factor": 8.0}}
    rope = rope_config(old, base=1.0)
    assert (rope.kind, rope.base, rope.factor) == ("ntk", 100.0, 8.0)
    found, _ = frequencies(rope, 16, 0)
    expected = [100.0 ** (-2 * i / 16) * 8.0 ** (-2 * (i + 1) / 16) for i in range(8)]
    assert found.tolist() == pytest.approx(expected)
    mixed, _ = frequencies(RopeConfig(100.0, "ntk", factor=8.0, mixed_b=1.0), 16, 0)
    expected = [100.0 ** (-2 * i / 16) * 8.0 ** (-(i + 1) / 8) for i in range(8)]
    assert mixed.tolist() == pytest.approx(expected)


def test_settings_are_found_for_a_layer_type_and_by_every_generations_names() -> None:
    nested = {"rope_parameters": {"full_attention": {"rope_theta": 7.0}, "sliding_attention": {}}}
    assert rope_config(nested, base=3.0, layer_type="full_attention").base == 7.0
    assert rope_config(nested, base=3.0, layer_type="sliding_attention").base == 3.0
    assert rope_config({"rotary_emb_base": 9, "rotary_emb_fraction": 0.5}, base=3.0) == RopeConfig(
        base=9.0, fraction=0.5
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rope_type": "axial"}, "'axial' is not supported"),
        ({"rope_type": "linear"}, "needs a factor"),
        ({"rope_theta": "high"}, "rope_theta must be a positive number, not 'high'"),
        ([1], "must be a map"),
        ({"rope_type": "yarn", "factor": 2}, "needs original_max_position_embeddings"),
        (
            {"type": "su", **TRAINED, "short_factor": [1, 0], "long_factor": [1]},
            "short_factor must",
        ),
        ({"type": "su", **TRAINED, "short_factor": [1]}, "long_factor must be a list"),
    ],
)
def test_settings_that_are_not_understood_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        rope_config({"rope_parameters": settings}, base=1.0)


@pytest.mark.parametrize(
    "rope",
    [
        RopeConfig(100.0, "dynamic", factor=2.0, original=8),
        RopeConfig(
            100.0,
            "longrope",
            original=8,
            short_factor=(1.0, 1.1, 1.3, 2.0),
            long_factor=(1.0, 2.0, 3.0, 5.0),
        ),
    ],
)
def test_scaling_by_length_depends_on_a_sequences_own_length_only(rope: RopeConfig) -> None:
    rotary = Rotary(8, 20, rope)
    torch.manual_seed(0)
    x = torch.randn(5 + 12 + 20 + 12, 16)
    together = x.clone()
    rotary(together, batch_of(5, 12, 20, 12))
    start = 0
    for length in (5, 12, 20, 12):
        alone = x[start : start + length].clone()
        rotary(alone, batch_of(length))
        torch.testing.assert_close(together[start : start + length], alone)
        turns, _ = frequencies(rope, 8, length)
        angle = (length - 1) * turns
        a, b = x[start + length - 1, :4], x[start + length - 1, 4:8]
        expected = a * angle.cos() - b * angle.sin()
        torch.testing.assert_close(alone[-1, :4], expected, atol=1e-5, rtol=1e-5)
        start += length


def test_longropes_numbers_are_one_for_each_pair_of_columns() -> None:
    rope = RopeConfig(100.0, "longrope", original=8, short_factor=(1.0,), long_factor=(1.0,))
    with pytest.raises(ModelLoadError, match="must have 4 numbers each"):
        Rotary(8, 20, rope)


@pytest.mark.parametrize("rope", [RopeConfig(fraction=0.4), RopeConfig(fraction=2.0)])
def test_a_fraction_that_leaves_no_pairs_is_refused(rope: RopeConfig) -> None:
    with pytest.raises(ModelLoadError, match="columns to turn"):
        Rotary(8, 20, rope)


def test_tables_beyond_all_bounds_are_refused_before_they_are_made() -> None:
    with pytest.raises(ModelLoadError, match="smaller max_model_len") as raised:
        Rotary(128, 1 << 22, RopeConfig())
    assert raised.value.param == "max_model_len"


def test_a_fraction_of_the_columns_turns_and_positions_are_bounded() -> None:
    rotary = Rotary(8, 4, RopeConfig(fraction=0.5))
    assert rotary.cos.shape == (4, 2)
    torch.testing.assert_close(plain(10000.0, 4), torch.tensor([1.0, 0.01]))
    x = torch.randn(4, 8)
    turned = x.clone()
    rotary(turned, batch_of(4))
    assert torch.equal(turned[:, 4:], x[:, 4:])
    assert not torch.equal(turned[1:, :4], x[1:, :4])
    with pytest.raises(InvalidRequest, match="outside"):
        rotary(torch.randn(5, 8), batch_of(5))
