"""All pooling metadata of a model folder taken together into one `PoolerConfig`.

A folder without sentence-transformers files gets the documented default: an encoder the mean, a
causal model the last token, both normalised. `EngineConfig.pooling` and `normalize` win over
everything. It knows no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from cenote.config import architectures, limits
from cenote.config.activations import from_class_path
from cenote.config.colbert import load_colbert_config
from cenote.config.engine import EngineConfig
from cenote.config.files import read_object
from cenote.config.instructed import with_instructions
from cenote.config.pooling import PoolerConfig, PoolingMode, Similarity, SparseConfig
from cenote.config.sentence_transformers import (
    MODES,
    Module,
    dense_config,
    pooling_modes,
    read_modules,
    sparse_config,
)
from cenote.config.static import MODEL_TYPE
from cenote.errors import InvalidRequest, ModelLoadError

Raw = Mapping[str, Any]

# Dropout does nothing when a model is used; MultiVectorMask is read with ColBERT's settings,
# LogitScore with a reranker's.
_MODULES = (
    "Transformer",
    "MLMTransformer",
    "StaticEmbedding",
    "Pooling",
    "Dense",
    "Normalize",
    "Dropout",
    "SpladePooling",
    "SparseStaticEmbedding",
    "MultiVectorMask",
    "LogitScore",
)
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_SETTINGS = "config_sentence_transformers.json"


def load_pooler_config(folder: Path, hf: Raw, engine: EngineConfig) -> PoolerConfig:
    """Everything after the hidden states, and the prompts before them, of the model in `folder`.

    `hf` is its config.json. Raises `ModelLoadError` for metadata that can't be followed to the
    letter, `InvalidRequest` for an unknown `EngineConfig.pooling`.
    """
    modules = read_modules(folder)
    settings = read_object(folder / _SETTINGS)
    _check_modules(modules)
    config = _from_modules(modules) if modules else _default(hf)
    config = with_instructions(config, hf, engine.model)
    limit = config.max_seq_length or _positions(hf)
    colbert = load_colbert_config(folder, hf, settings, modules, limit=limit)
    if colbert is not None:
        # PyLate normalises in code; only sentence-transformers' own form lists a Normalize.
        native = any(module.kind == "MultiVectorMask" for module in modules)
        config = replace(config, colbert=colbert, normalize=config.normalize or not native)
    config = replace(
        config,
        prompts={**config.prompts, **_prompts(settings, hf)},
        default_prompt_name=_default_prompt_name(settings) or config.default_prompt_name,
        similarity=_similarity(settings, "cosine" if config.sparse is None else "dot"),
        activation=_activation(settings, hf),
        matryoshka=_matryoshka(settings, hf),
        is_matryoshka=bool(_matryoshka(settings, hf) or hf.get("is_matryoshka")),
        declared=bool(modules) or colbert is not None,
        bge_m3=_has_bge_m3_heads(folder),
    )
    return _overridden(config, engine)


def _check_modules(modules: Sequence[Module]) -> None:
    """Refuses unknown modules, and orders that a `PoolerConfig` can't express."""
    for module in modules:
        if module.kind not in _MODULES:
            raise ModelLoadError(
                f"modules.json: module type {module.kind!r} is not supported. Supported: "
                f"{', '.join(_MODULES)}."
            )
    kinds = {module.kind for module in modules}
    if "StaticEmbedding" in kinds and kinds & {"Transformer", "MLMTransformer"}:
        raise ModelLoadError("modules.json: StaticEmbedding beside a Transformer is not supported.")
    order = [m.kind for m in modules if m.kind in ("Pooling", "Dense", "Normalize")]
    rank = {"Pooling": 0, "Dense": 1, "Normalize": 2}
    if order.count("Pooling") > 1 or order != sorted(order, key=rank.__getitem__):
        raise ModelLoadError(
            f"modules.json: the order {', '.join(order)} is not supported; it must be Pooling, "
            "then Dense modules, then Normalize."
        )


def _from_modules(modules: Sequence[Module]) -> PoolerConfig:
    config = PoolerConfig(normalize=any(module.kind == "Normalize" for module in modules))
    config = replace(
        config, dense=tuple(dense_config(module) for module in modules if module.kind == "Dense")
    )
    for module in modules:
        if module.kind == "Pooling":
            config = replace(
                config,
                modes=pooling_modes(module.config),
                include_prompt=bool(module.config.get("include_prompt", True)),
            )
        elif module.kind == "SpladePooling":
            static = next((m for m in modules if m.kind == "SparseStaticEmbedding"), None)
            config = replace(config, sparse=sparse_config(module, static))
        elif module.kind in ("Transformer", "MLMTransformer"):
            config = replace(
                config,
                max_seq_length=_max_seq_length(module),
                do_lower_case=bool(module.config.get("do_lower_case", False)),
            )
    return config


def _max_seq_length(module: Module) -> int | None:
    value = module.config.get("max_seq_length")
    if value is not None and (type(value) is not int or value < 1):
        raise ModelLoadError(f"max_seq_length must be a positive integer, not {value!r}.")
    return value


def _default(hf: Raw) -> PoolerConfig:
    names = hf.get("architectures") or [""]
    if hf.get("model_type") == MODEL_TYPE:
        return PoolerConfig(normalize=bool(hf["normalize"]))
    causal = architectures.is_causal(hf, str(names[0]))
    sparse = SparseConfig() if str(names[0]).endswith("ForMaskedLM") else None
    return PoolerConfig(modes=("last",) if causal else ("mean",), normalize=True, sparse=sparse)


def _positions(hf: Raw) -> int:
    return limits.position_limit(hf, str(hf.get("model_type", ""))) or limits.DEFAULT_LENGTH


def _has_bge_m3_heads(folder: Path) -> bool:
    """Whether both of BGE-M3's further heads are there; one without the other is refused."""
    heads = ("sparse_linear", "colbert_linear")
    found = [
        name
        for name in heads
        if any((folder / f"{name}.{suffix}").is_file() for suffix in ("safetensors", "pt"))
    ]
    if len(found) == 1:
        raise ModelLoadError(f"{folder} has {found[0]}, but BGE-M3 needs both of {list(heads)}.")
    return bool(found)


def _prompts(settings: Raw, hf: Raw) -> dict[str, str]:
    """Prompt texts by name; `task_instructions` of config.json are prompts by an older name."""
    found: dict[str, str] = {}
    for source in (hf.get("task_instructions"), settings.get("prompts")):
        if isinstance(source, Mapping):
            found.update({str(name): str(text or "") for name, text in source.items()})
    # PyLate inserts the marker ahead of the prompt; some saves have it in both places.
    for key, name in (("query_prefix", "query"), ("document_prefix", "document")):
        marker = settings.get(key)
        if marker and name in found:
            found[name] = found[name].removeprefix(marker)
    return found


def _default_prompt_name(settings: Raw) -> str | None:
    name = settings.get("default_prompt_name")
    if name is not None and (
        not isinstance(name, str) or name not in (settings.get("prompts") or {})
    ):
        raise ModelLoadError(f"{_SETTINGS}: default_prompt_name {name!r} is none of its prompts.")
    return name


def _similarity(settings: Raw, default: Similarity) -> Similarity:
    """How two vectors compare; MaxSim's inner product of normalised rows is the cosine."""
    name = settings.get("similarity_fn_name") or default
    if str(name).lower() in ("maxsim", "meanmaxsim"):
        return "cosine"
    if name not in _SIMILARITIES:
        raise ModelLoadError(
            f"{_SETTINGS}: similarity_fn_name {name!r} is unknown; known: {_SIMILARITIES}."
        )
    return cast(Similarity, name)


def _activation(settings: Raw, hf: Raw) -> str | None:
    """A cross-encoder's own activation: the newest of the three places that sentence-transformers
    has kept it in."""
    nested = hf.get("sentence_transformers")
    for where, path in (
        (_SETTINGS, settings.get("activation_fn")),
        ("config.json", nested.get("activation_fn") if isinstance(nested, Mapping) else None),
        ("config.json", hf.get("sbert_ce_default_activation_function")),
    ):
        if path is not None:
            return from_class_path(path, where=where)
    return None


def _matryoshka(settings: Raw, hf: Raw) -> tuple[int, ...]:
    sizes = hf.get("matryoshka_dimensions") or settings.get("matryoshka_dimensions") or ()
    try:
        return tuple(sorted(int(size) for size in sizes))
    except (TypeError, ValueError):
        raise ModelLoadError(f"matryoshka_dimensions {sizes!r} is not a list of sizes.") from None


def _overridden(config: PoolerConfig, engine: EngineConfig) -> PoolerConfig:
    """`config` with the user's own pooling and normalisation."""
    if engine.pooling is not None:
        config = replace(config, modes=_modes_of(engine.pooling))
    if engine.normalize is not None:
        config = replace(config, normalize=engine.normalize)
    return config


def _modes_of(pooling: str) -> tuple[PoolingMode, ...]:
    """`cls`, or several as `cls,mean`; both our names and sentence-transformers' are taken."""
    known: dict[str, PoolingMode] = {**MODES, **{mode: mode for mode in MODES.values()}}
    names = [name.strip() for name in pooling.split(",")]
    for name in names:
        if name not in known:
            raise InvalidRequest(
                f"pooling {name!r} is unknown. Known: {', '.join(sorted(set(MODES.values())))}.",
                param="pooling",
            )
    return tuple(known[name] for name in names)
