"""From a model folder's configuration to a model that is ready to run.

Built on the meta device, filled tensor by tensor, then packed for the kernels in use. It knows no
tokenizer, no pooling and no request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.kernels import backend
from cenote.layers.packing import WeightForm, pack_weights
from cenote.loader.hub import resolve
from cenote.loader.token_head import IGNORED, read_token_head
from cenote.loader.weights import load_weights
from cenote.models.adapters import attach_adapters
from cenote.models.base import PoolingModel
from cenote.models.registry import model_class


@runtime_checkable
class SelfLoading(Protocol):
    """A model that isn't made of our layers, so that no rules fill it and nothing is packed."""

    def load(self, dtype: torch.dtype) -> None: ...


logger = logging.getLogger(__name__)

# Instruction sets on which int8 products were measured to be faster than any others.
FAST_INT8 = frozenset({"amx", "amx_emulated", "avx512_bf16", "avx512_vnni"})


def compute_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """What products really compute in: CPUs have no fast float16, so there it is float32.

    Every float16 number is a float32 number: nothing of the checkpoint is lost.
    """
    if device.type == "cpu" and dtype == torch.float16:
        return torch.float32
    return dtype


def load_model(
    config: ModelConfig, *, dtype: torch.dtype, device: torch.device, engine: EngineConfig
) -> PoolingModel:
    """The model of `config.path` on `device`, its matrices in `dtype`, in evaluation mode.

    Configures the kernels of this process on the way. Raises ModelLoadError for an architecture
    that isn't known, a checkpoint that doesn't fit it, and kernels that can't be used.
    """
    dtype = compute_dtype(dtype, device)
    backend.configure(engine.kernels, device, dtype, threads=engine.threads)
    form = weight_form(dtype, engine)
    with _building(form.load_dtype), _explained(config):
        model = serving_class(config)(config)
    if isinstance(model, SelfLoading):
        _refuse_settings(config, engine)
        model.load(form.dtype)
    else:
        _fill(model, config)
    model.requires_grad_(False).eval().to(device)
    if engine.adapters:
        attach_adapters(model, adapter_folders(engine, config))
    pack_weights(model, form)
    return model


def _refuse_settings(config: ModelConfig, engine: EngineConfig) -> None:
    """Raises ModelLoadError for settings that need our own layers."""
    for name, given in (
        ("quantization", engine.quantization != "none"),
        ("adapters", bool(engine.adapters)),
    ):
        if given:
            raise ModelLoadError(
                f"{name} needs an implementation of our own; {config.architecture} falls back to "
                "transformers.",
                param=name,
            )


def _fill(model: PoolingModel, config: ModelConfig) -> None:
    """Weights from the checkpoint; the classifier of a reranker from its language model's head."""
    rules, made = model.weight_rules, {}
    if config.reranker is not None and config.reranker.tokens:
        if "classifier.weight" not in model.state_dict():
            raise ModelLoadError(
                f"{config.architecture} has a classifier of its own and can't score by the logits "
                f"of the tokens {list(config.reranker.tokens)}."
            )
        made["classifier.weight"] = read_token_head(config, config.reranker, rules)
        rules = (*IGNORED, *rules)
    load_weights(model, rules, config.transformer_path, None, made)


def adapter_folders(engine: EngineConfig, config: ModelConfig) -> dict[str, Path]:
    """Where the adapters of `engine` are, by name, downloaded where they are on the hub.

    Raises ModelLoadError for a name that the checkpoint's own adapters have, and as `resolve` does.
    """
    named = engine.adapter_sources()
    for name in named:
        if name in config.adapters:
            raise ModelLoadError(f"The model has an adapter {name!r} of its own.", param="adapters")
    return {name: resolve(source).folder for name, source in named.items()}


def weight_form(dtype: torch.dtype, engine: EngineConfig) -> WeightForm:
    """What `quantization` asks for, with the kernels that have been configured.

    Raises ModelLoadError where it needs kernels that can't be used.
    """
    wanted = engine.quantization
    if wanted == "none":
        return WeightForm(dtype)
    if backend.native() is None:
        raise ModelLoadError(
            f"quantization={wanted} needs the native kernels, and this process runs on "
            f"{backend.describe()}.",
            param="quantization",
        )
    if backend.instruction_set() not in FAST_INT8:
        logger.warning(
            "quantization=%s saves memory, but this processor (%s) has no int8 products of its "
            "own: it may be no faster than without.",
            wanted,
            backend.instruction_set(),
        )
    return WeightForm(dtype, int8=True, spare=wanted == "int8-mixed")


def serving_class(config: ModelConfig) -> type[PoolingModel]:
    """The class for a folder: its architecture's, or the body of that where its head is unused.

    A vocabulary head is, where metadata asks for a pooled vector or for late interaction.
    """
    found, pooler = model_class(config.architecture), config.pooler
    unused = pooler.colbert is not None or (pooler.declared and pooler.sparse is None)
    return found.body() if found.info.head == "vocab" and unused else found


@contextmanager
def _explained(config: ModelConfig) -> Iterator[None]:
    """Numbers of config.json that contradict each other raise ModelLoadError, whoever finds it."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
        file = config.transformer_path / "config.json"
        raise ModelLoadError(
            f"{file} makes no {config.architecture}: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _building(dtype: torch.dtype) -> Iterator[None]:
    """Parameters made inside have no storage, and `dtype` where their layer doesn't pin one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(before)
