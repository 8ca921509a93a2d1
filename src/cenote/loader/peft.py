"""A LoRA adapter's folder in PEFT's form: adapter_config.json and adapter_model.safetensors.

What can't be followed to the letter is refused by the name of its setting. It knows no model: names
are those of the modules that the adapter was trained on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cenote.config.fields import positive_float
from cenote.config.files import read_object
from cenote.errors import ModelLoadError

_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_LOW = re.compile(r"(.+)\.lora_(embedding_)?(A|B)(?:\.weight)?")
_MAGNITUDE = re.compile(r"(.+)\.lora_magnitude_vector(?:\.weight)?")

# Settings whose other values change what the adapter computes, with the values that don't.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "lora_bias": (False, None),
    "use_qalora": (False, None),
    "alora_invocation_tokens": (None, []),
    "trainable_token_indices": (None, {}, []),
    "target_parameters": (None, []),
    "megatron_config": (None,),
    # The other ways to begin change the base model's own weights.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}


@dataclass(frozen=True, slots=True)
class LowRank:
    """a `[r, in]` and b `[out, r]`, the scale in b: what is added to a matrix is b · a, and to a
    table its transpose. `magnitude` `[out]` (DoRA, Liu et al. 2024, arXiv:2402.09353): the length
    that each row of the sum is brought to. float32."""

    a: Tensor
    b: Tensor
    is_table: bool = False
    magnitude: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's tensors, float32.

    `low`: by module. `whole`: tensors that replace the model's (`modules_to_save`), by their name.
    """

    low: Mapping[str, LowRank] = field(default_factory=dict)
    whole: Mapping[str, Tensor] = field(default_factory=dict)


def read_adapter(folder: Path) -> Adapter:
    """Reads an adapter. Raises `ModelLoadError` that names the file, setting or tensor at fault."""
    config = read_object(folder / _CONFIG)
    if not config:
        raise ModelLoadError(f"{folder} has no {_CONFIG}, so it is not an adapter's folder.")
    _check(folder, config)
    parts: dict[str, dict[str, Tensor]] = {}
    whole: dict[str, Tensor] = {}
    for name, tensor in _tensors(folder).items():
        bare = name.removeprefix(_PREFIX)
        low, magnitude = _LOW.fullmatch(bare), _MAGNITUDE.fullmatch(bare)
        if low is not None:
            parts.setdefault(low[1], {})[f"{low[2] or ''}{low[3]}"] = tensor.float()
        elif magnitude is not None:
            parts.setdefault(magnitude[1], {})["magnitude_vector"] = tensor.float()
        elif "lora_" in bare:
            raise ModelLoadError(
                f"{folder}: tensor {name!r} is not supported; only adapters of matrices and tables "
                "are."
            )
        else:
            whole[bare.replace(".modules_to_save", "")] = tensor.float()
    return Adapter(
        {module: _low_rank(folder, config, module, own) for module, own in parts.items()}, whole
    )


def _check(folder: Path, config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise ModelLoadError(
            f"{folder}/{_CONFIG}: peft_type {config.get('peft_type')!r} is not supported; only "
            "LORA is."
        )
    for name, plain in _PLAIN.items():
        if config.get(name, plain[0]) not in plain:
            raise ModelLoadError(
                f"{folder}/{_CONFIG}: {name}={config[name]!r} is not supported; only "
                f"{', '.join(map(repr, plain))}."
            )


def _tensors(folder: Path) -> dict[str, Tensor]:
    path = folder / _WEIGHTS
    if not path.is_file():
        raise ModelLoadError(
            f"{folder} has no {_WEIGHTS}. Pickled adapters (adapter_model.bin) are never loaded: "
            "save it again with PEFT's save_pretrained."
        )
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelLoadError(f"{path} can't be read: {error}") from error
    return tensors


def _low_rank(
    folder: Path, config: Mapping[str, Any], module: str, parts: Mapping[str, Tensor]
) -> LowRank:
    """The two halves; b times alpha / r, or alpha / √r where the adapter is rank-stabilised."""
    is_table = any(name.startswith("embedding_") for name in parts)
    dora = bool(config.get("use_dora"))
    if is_table and dora:
        raise ModelLoadError(f"{folder}: {module}: use_dora is not supported for tables.")
    first, second = ("embedding_A", "embedding_B") if is_table else ("A", "B")
    wanted = {first, second, "magnitude_vector"} if dora else {first, second}
    if parts.keys() != wanted:
        found, expected = (
            ", ".join(f"lora_{name}" for name in sorted(names)) for names in (parts, wanted)
        )
        raise ModelLoadError(f"{folder}: {module} has {found}; it must have {expected}.")
    a, b, magnitude = parts[first], parts[second], parts.get("magnitude_vector")
    if a.dim() != 2 or b.dim() != 2 or a.shape[0] != b.shape[1]:
        raise ModelLoadError(
            f"{folder}: {module} has lora_{first} {list(a.shape)} and lora_{second} "
            f"{list(b.shape)}, which don't fit together as [r, in] and [out, r]."
        )
    if magnitude is not None and magnitude.shape != b.shape[:1]:
        raise ModelLoadError(
            f"{folder}: {module} has lora_magnitude_vector {list(magnitude.shape)}, not "
            f"[{b.shape[0]}]."
        )
    rank = max(a.shape[0], 1)
    scale = _alpha(folder, config, module) / (rank**0.5 if config.get("use_rslora") else rank)
    return LowRank(a, b * scale, is_table, magnitude)


def _alpha(folder: Path, config: Mapping[str, Any], module: str) -> float:
    """A module's own `alpha_pattern`, else `lora_alpha`."""
    patterns = config.get("alpha_pattern") or {}
    try:
        for pattern, own in patterns.items():
            if re.fullmatch(rf"(?:.*\.)?(?:{pattern})", module):
                return float(own)
    except (AttributeError, TypeError, ValueError, re.error) as error:
        raise ModelLoadError(
            f"{folder}/{_CONFIG}: alpha_pattern {patterns!r} is not patterns with numbers."
        ) from error
    return positive_float(config, ("lora_alpha",), 8.0)
