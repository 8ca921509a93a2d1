"""How a model's rotary positions are made: base, fraction and scaling, from its config.json.

It knows no torch and no model: `layers.frequencies` turns a `RopeConfig` into numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from cenote.config.fields import POSITIONS, Raw, first
from cenote.errors import ModelLoadError

RopeKind = Literal["default", "linear", "dynamic", "yarn", "llama3", "ntk"]

_KINDS: tuple[RopeKind, ...] = ("default", "linear", "dynamic", "yarn", "llama3", "ntk")
_BASE = ("rope_theta", "rotary_emb_base")
_FRACTION = ("partial_rotary_factor", "rotary_emb_fraction", "rotary_pct")
_ORIGINAL = ("original_max_position_embeddings",)


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """One set of rotary frequencies.

    `fraction` is the part of a head's columns that turns. `original` is the longest sequence of
    the training before scaling. The other fields belong to one kind each and have its paper's
    names; `attention_factor` (yarn) None: as the paper suggests.
    """

    base: float = 10000.0
    kind: RopeKind = "default"
    fraction: float = 1.0
    factor: float = 1.0
    original: int = 0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    mixed_b: float | None = None


def rope_config(hf: Raw, *, base: float, layer_type: str | None = None) -> RopeConfig:
    """The rotary settings of a configuration, in the form of any generation.

    `rope_parameters` is the present one and may hold a set for each layer type; `rope_scaling` and
    `rope_theta` are the one before. `base` is the family's own default. Raises `ModelLoadError`
    for a kind of scaling that isn't known and for values of the wrong type.
    """
    settings = _settings(hf, layer_type)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if kind not in _KINDS:
        raise ModelLoadError(
            f"config.json: rotary scaling of type {kind!r} is not supported; known: "
            f"{', '.join(_KINDS)}."
        )
    original = int(_number({**hf, **settings}, (*_ORIGINAL, *POSITIONS), 0))
    factor = settings.get("factor")
    if factor is None and kind == "yarn" and original:
        factor = _number(hf, POSITIONS, original) / original
    if factor is None and kind != "default":
        raise ModelLoadError(f"config.json: rotary scaling of type {kind!r} needs a factor.")
    return RopeConfig(
        base=_number(settings, _BASE, _number(hf, _BASE, base)),
        kind=cast(RopeKind, kind),
        fraction=_number(settings, _FRACTION, _number(hf, _FRACTION, 1.0)),
        factor=_number({"factor": factor}, ("factor",), 1.0),
        original=original,
        attention_factor=_optional(settings, "attention_factor"),
        beta_fast=_number(settings, ("beta_fast",), 32.0),
        beta_slow=_number(settings, ("beta_slow",), 1.0),
        mscale=_optional(settings, "mscale"),
        mscale_all_dim=_optional(settings, "mscale_all_dim"),
        truncate=settings.get("truncate") is not False,
        low_freq_factor=_number(settings, ("low_freq_factor",), 1.0),
        high_freq_factor=_number(settings, ("high_freq_factor",), 4.0),
        mixed_b=_optional(settings, "mixed_b"),
    )


def _settings(hf: Raw, layer_type: str | None) -> Mapping[str, Any]:
    settings = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    if isinstance(settings, Mapping) and layer_type is not None and layer_type in settings:
        settings = settings[layer_type] or {}
    if not isinstance(settings, Mapping):
        raise ModelLoadError(f"config.json: rope_parameters must be a map, not {settings!r}.")
    return settings


def _optional(values: Raw, name: str) -> float | None:
    return None if values.get(name) is None else _number(values, (name,), 0.0)


def _number(values: Raw, names: tuple[str, ...], default: float) -> float:
    """A positive number under the first of `names`, `default` where there is none."""
    value = first(values, names)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ModelLoadError(f"config.json: {names[0]} must be a positive number, not {value!r}.")
    return float(value)
