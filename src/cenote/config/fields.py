"""The same number under each family's own name in config.json, and the checks on its type.

It knows names and types only; what the numbers mean for a model is the model's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cenote.errors import ModelLoadError

HIDDEN_SIZE = ("hidden_size", "dim", "d_model", "n_embd")
NUM_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers")
NUM_HEADS = (
    "num_attention_heads",
    "n_heads",
    "n_head",
    "num_heads",
    "encoder_attention_heads",
)
INTERMEDIATE_SIZE = ("intermediate_size", "hidden_dim", "n_inner", "d_ff", "encoder_ffn_dim")
NORM_EPS = ("layer_norm_eps", "rms_norm_eps", "norm_eps", "layer_norm_epsilon")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
ACTIVATION = ("hidden_act", "hidden_activation", "activation", "activation_function")

Raw = Mapping[str, Any]


def text_part(hf: Raw) -> Raw:
    """The part that describes the text model: `text_config` where that is nested, else all."""
    nested = hf.get("text_config")
    if isinstance(nested, Mapping) and first(hf, NUM_LAYERS) is None:
        return nested
    return hf


def first(hf: Raw, names: tuple[str, ...]) -> Any:
    """The value under the first of `names` that is there and not null."""
    return next((hf[name] for name in names if hf.get(name) is not None), None)


def positive_int(hf: Raw, names: tuple[str, ...], default: int | None = None) -> int:
    """A positive whole number; `default` where it is absent, `ModelLoadError` without one."""
    value = first(hf, names)
    if value is None:
        value = default
    if value is None:
        raise ModelLoadError(f"config.json has none of the fields {', '.join(names)}.")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelLoadError(f"config.json: {names[0]} must be a positive integer, not {value!r}.")
    return value


def positive_float(hf: Raw, names: tuple[str, ...], default: float) -> float:
    """A positive number, `default` where it is absent."""
    value = first(hf, names)
    if value is None:
        return default
    if not is_positive(value):
        raise ModelLoadError(f"config.json: {names[0]} must be a positive number, not {value!r}.")
    return float(value)


def is_positive(value: Any) -> bool:
    """Whether it is a number, finite and above 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf


def text(hf: Raw, names: tuple[str, ...], default: str) -> str:
    """A string, `default` where it is absent."""
    value = first(hf, names)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ModelLoadError(f"config.json: {names[0]} must be a string, not {value!r}.")
    return value
