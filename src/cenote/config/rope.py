"""How a model's rotary positions are made: base, fraction and scaling, from its config.json.

It knows no torch and no model: `layers.frequencies` turns a `RopeConfig` into numbers.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from cenote.config.fields import POSITIONS, Raw, is_positive, positive_float
from cenote.errors import ModelLoadError

RopeKind = Literal["default", "linear", "dynamic", "yarn", "llama3", "ntk", "longrope"]

_KINDS: tuple[RopeKind, ...] = get_args(RopeKind)
# Phi-3's first name of it.
_OLD_NAMES = {"su": "longrope"}
# Those that go by the length of the training, and those whose factor may follow from it.
_BY_ORIGINAL = frozenset({"dynamic", "yarn", "llama3", "longrope"})
_RATIO = frozenset({"yarn", "longrope"})
_BASE = ("rope_theta", "rotary_emb_base")
_FRACTION = ("partial_rotary_factor", "rotary_emb_fraction", "rotary_pct")
_ORIGINAL = ("original_max_position_embeddings",)


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """One set of rotary frequencies.

    `fraction` is the part of a head's columns that turns. `original` is the longest sequence of
    the training before scaling. The other fields belong to one kind each and have its paper's
    names; `attention_factor` (yarn, longrope) None: as the paper suggests. `short_factor` and
    `long_factor` divide each pair's frequency, in sequences up to `original` and in longer ones.
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
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    def varies(self, longest: int) -> bool:
        """Whether frequencies depend on a sequence's length, of lengths up to `longest`."""
        return self.kind in ("dynamic", "longrope") and longest > self.original


def rope_config(hf: Raw, *, base: float, layer_type: str | None = None) -> RopeConfig:
    """The rotary settings of a configuration, in the form of any generation.

    `rope_parameters` is the present one and may hold a set for each layer type; `rope_scaling` and
    `rope_theta` are the one before. `base` is the family's own default. Raises `ModelLoadError`
    for a kind of scaling that isn't known and for values of the wrong type.
    """
    settings = _settings(hf, layer_type)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    kind = _OLD_NAMES.get(str(kind), kind)
    if kind not in _KINDS:
        raise ModelLoadError(
            f"config.json: rotary scaling of type {kind!r} is not supported; known: "
            f"{', '.join(_KINDS)}."
        )
    # Dynamic scaling begins at the model's positions, whatever else is said (transformers 5.24).
    lengths = (*POSITIONS, *_ORIGINAL) if kind == "dynamic" else (*_ORIGINAL, *POSITIONS)
    original = int(positive_float({**hf, **settings}, lengths, 0))
    factor = settings.get("factor")
    if kind in _BY_ORIGINAL and not original:
        raise ModelLoadError(
            f"config.json: rotary scaling of type {kind!r} needs {_ORIGINAL[0]} or {POSITIONS[0]}."
        )
    if factor is None and kind in _RATIO:
        factor = positive_float(hf, POSITIONS, original) / original
    if factor is None and kind != "default":
        raise ModelLoadError(f"config.json: rotary scaling of type {kind!r} needs a factor.")
    return RopeConfig(
        base=positive_float(settings, _BASE, positive_float(hf, _BASE, base)),
        kind=cast(RopeKind, kind),
        fraction=positive_float(settings, _FRACTION, positive_float(hf, _FRACTION, 1.0)),
        factor=positive_float({"factor": factor}, ("factor",), 1.0),
        original=original,
        attention_factor=_optional(settings, "attention_factor"),
        beta_fast=positive_float(settings, ("beta_fast",), 32.0),
        beta_slow=positive_float(settings, ("beta_slow",), 1.0),
        mscale=_optional(settings, "mscale"),
        mscale_all_dim=_optional(settings, "mscale_all_dim"),
        truncate=settings.get("truncate") is not False,
        low_freq_factor=positive_float(settings, ("low_freq_factor",), 1.0),
        high_freq_factor=positive_float(settings, ("high_freq_factor",), 4.0),
        mixed_b=_optional(settings, "mixed_b"),
        short_factor=_factors(settings, "short_factor", kind),
        long_factor=_factors(settings, "long_factor", kind),
    )


def _settings(hf: Raw, layer_type: str | None) -> Mapping[str, Any]:
    settings = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    if isinstance(settings, Mapping) and layer_type is not None and layer_type in settings:
        settings = settings[layer_type] or {}
    if not isinstance(settings, Mapping):
        raise ModelLoadError(f"config.json: rope_parameters must be a map, not {settings!r}.")
    return settings


def _factors(settings: Raw, name: str, kind: str) -> tuple[float, ...]:
    """A list of longrope's; empty for other kinds."""
    if kind != "longrope":
        return ()
    values = settings.get(name)
    if not isinstance(values, list) or not all(map(is_positive, values)):
        raise ModelLoadError(
            f"config.json: {name} must be a list of positive numbers, not {reprlib.repr(values)}."
        )
    return tuple(map(float, values))


def _optional(values: Raw, name: str) -> float | None:
    return None if values.get(name) is None else positive_float(values, (name,), 0.0)
