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
_LOW = re.compile(r"(.+)\.lora_(A|B)\.weight")

# Settings whose other values change what the adapter computes, with the values that don't.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "use_dora": (False, None),
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
class Adapter:
    """An adapter's tensors, float32.

    `low`: by module, a `[r, in]` and b `[out, r]`, the scale in b. `whole`: tensors that replace
    the model's (`modules_to_save`), by their name.
    """

    low: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    whole: Mapping[str, Tensor] = field(default_factory=dict)


def read_adapter(folder: Path) -> Adapter:
    """Reads an adapter. Raises `ModelLoadError` that names the file, setting or tensor at fault."""
    config = read_object(folder / _CONFIG)
    if not config:
        raise ModelLoadError(f"{folder} has no {_CONFIG}, so it is not an adapter's folder.")
    _check(folder, config)
    halves: dict[str, dict[str, Tensor]] = {}
    whole: dict[str, Tensor] = {}
    for name, tensor in _tensors(folder).items():
        bare = name.removeprefix(_PREFIX)
        found = _LOW.fullmatch(bare)
        if found is not None:
            halves.setdefault(found[1], {})[found[2]] = tensor.float()
        elif "lora_" in bare:
            raise ModelLoadError(
                f"{folder}: tensor {name!r} is not supported; only adapters of matrices are."
            )
        else:
            whole[bare.replace(".modules_to_save", "")] = tensor.float()
    return Adapter(
        {module: _scaled(folder, config, module, pair) for module, pair in halves.items()}, whole
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


def _scaled(
    folder: Path, config: Mapping[str, Any], module: str, pair: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """a, and b times alpha / r, or alpha / √r where the adapter is rank-stabilised."""
    missing = {"A", "B"} - pair.keys()
    if missing:
        raise ModelLoadError(f"{folder}: {module} has no lora_{missing.pop()}.")
    a, b = pair["A"], pair["B"]
    if a.dim() != 2 or b.dim() != 2 or a.shape[0] != b.shape[1]:
        raise ModelLoadError(
            f"{folder}: {module} has lora_A {list(a.shape)} and lora_B {list(b.shape)}, which "
            "don't fit together as [r, in] and [out, r]."
        )
    rank = a.shape[0]
    return a, b * (
        _alpha(folder, config, module) / (rank**0.5 if config.get("use_rslora") else rank)
    )


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
