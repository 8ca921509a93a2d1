"""Rotary frequencies: how fast each pair of columns turns, with every kind of scaling.

It knows no positions and no tables. All of it is in float32, and angles are float32 products of
it, as in the libraries that models are trained with: more exact numbers would differ from those
at high positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cenote.config.rope import RopeConfig
from cenote.errors import ModelLoadError


def frequencies(rope: RopeConfig, rotary_dim: int, length: int) -> tuple[Tensor, float]:
    """Radians per position, float32 `[rotary_dim / 2]`, and what cos and sin are multiplied by.

    `length` is the longest sequence that they are for; only dynamic and longrope scaling depend on
    it.
    """
    if rope.kind == "longrope":
        return _longrope(rope, rotary_dim, length), _longrope_attention(rope)
    if rope.kind == "yarn":
        return _yarn(rope, rotary_dim), _yarn_attention(rope)
    if rope.kind == "dynamic":
        return plain(_dynamic_base(rope, rotary_dim, length), rotary_dim), 1.0
    return _SCALED[rope.kind](rope, rotary_dim), 1.0


def plain(base: float, rotary_dim: int) -> Tensor:
    """base^(-2i / rotary_dim) (Su et al. 2021, arXiv:2104.09864)."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device="cpu") / rotary_dim
    return 1.0 / base**exponents


def _default(rope: RopeConfig, rotary_dim: int) -> Tensor:
    return plain(rope.base, rotary_dim)


def _linear(rope: RopeConfig, rotary_dim: int) -> Tensor:
    """Position interpolation (Chen et al. 2023, arXiv:2306.15595)."""
    return plain(rope.base, rotary_dim) / rope.factor


def _dynamic_base(rope: RopeConfig, rotary_dim: int, length: int) -> float:
    """The base for a sequence of `length`; up to the trained one it stays as it is."""
    reach = max(length, rope.original) / rope.original
    stretch = rope.factor * reach - (rope.factor - 1)
    return float(rope.base * stretch ** (rotary_dim / (rotary_dim - 2)))


def _ntk(rope: RopeConfig, rotary_dim: int) -> Tensor:
    """Fixed and mixed NTK scaling (J. Su, kexue.fm/archives/9706, equations 6 and 10 to 13)."""
    if rope.mixed_b is None:
        scaled = plain(rope.base * rope.factor, rotary_dim)
        return scaled / float(rope.factor ** (2 / rotary_dim))
    steps = torch.arange(1, rotary_dim // 2 + 1, dtype=torch.float32, device="cpu")
    rate = math.log(rope.factor) / math.pow(rotary_dim / 2, rope.mixed_b)
    return plain(rope.base, rotary_dim) / (rate * steps**rope.mixed_b).exp()


def _llama3(rope: RopeConfig, rotary_dim: int) -> Tensor:
    """Llama 3.1: slow pairs are stretched, fast ones left, those between blended."""
    full = plain(rope.base, rotary_dim)
    turns = rope.original * full / (2 * math.pi)  # in the trained context
    low, high = rope.low_freq_factor, rope.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * full + (1 - kept) * full / rope.factor


def _yarn(rope: RopeConfig, rotary_dim: int) -> Tensor:
    """YaRN (Peng et al. 2023, arXiv:2309.00071): the slow pairs are stretched."""
    full = plain(rope.base, rotary_dim)

    def pair_of(turns: float) -> float:
        """Which pair makes so many turns within the trained context."""
        ratio = rope.original / (turns * 2 * math.pi)
        return rotary_dim * math.log(ratio) / (2 * math.log(rope.base))

    low, high = pair_of(rope.beta_fast), pair_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    width = high - low if high != low else 0.001
    pairs = torch.arange(rotary_dim // 2, dtype=torch.float32, device="cpu")
    stretched = ((pairs - low) / width).clamp(0, 1)
    return stretched * full / rope.factor + (1 - stretched) * full


def _yarn_attention(rope: RopeConfig) -> float:
    """The factor on cos and sin, so that its square is on the logits."""
    if rope.attention_factor is not None:
        return rope.attention_factor

    def grown(weight: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * weight * math.log(rope.factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return grown(rope.mscale) / grown(rope.mscale_all_dim)
    return grown(1.0)


def _longrope(rope: RopeConfig, rotary_dim: int, length: int) -> Tensor:
    """LongRoPE (Ding et al. 2024, arXiv:2402.13753): a factor found by search for each pair."""
    factors = rope.long_factor if length > rope.original else rope.short_factor
    if len(factors) != rotary_dim // 2:
        raise ModelLoadError(
            f"config.json: short_factor and long_factor must have {rotary_dim // 2} numbers each, "
            f"one for each pair of columns, not {len(factors)}."
        )
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device="cpu") / rotary_dim
    return 1.0 / (torch.tensor(factors, dtype=torch.float32, device="cpu") * rope.base**exponents)


def _longrope_attention(rope: RopeConfig) -> float:
    """The factor on cos and sin, the same at all lengths."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original))


_SCALED: dict[str, Callable[[RopeConfig, int], Tensor]] = {
    "default": _default,
    "linear": _linear,
    "ntk": _ntk,
    "llama3": _llama3,
}
