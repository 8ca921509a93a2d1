"""The files that sentence-transformers puts into a model folder, old generations and new.

`modules.json` names the modules in order; each has a folder with its config. A module or a pooling
mode that isn't known is refused by name: a guess would give plausible wrong vectors. It knows no
weights. Facts: sentence_transformers 6.2, `base/modules` and `sentence_transformer/modules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cenote.config.activations import from_class_path
from cenote.config.files import read_json, read_object
from cenote.config.pooling import DenseConfig, PoolingMode, SparseConfig
from cenote.config.schema import MAX_WIDTH
from cenote.errors import ModelLoadError

# Our names of the modes, in the order in which the old flags are concatenated.
MODES: dict[str, PoolingMode] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weightedmean",
    "lasttoken": "last",
}

_FLAGS: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}

_TRANSFORMERS = ("Transformer", "MLMTransformer")

# Where a Transformer module keeps its settings; which name depends on the class that saved it.
_SETTINGS_FILES = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)

# The own module of models with task adapters (Jina v3): a Transformer that also picks an adapter,
# which is done elsewhere here.
_ADAPTED = "custom_st.Transformer"

_ROUTER = "router_config.json"


@dataclass(frozen=True, slots=True)
class Module:
    """One entry of modules.json: the class's own name, its folder (relative) and its config."""

    kind: str
    folder: str
    config: dict[str, Any]


def read_modules(folder: Path) -> list[Module]:
    """The modules in order, empty without modules.json. Raises `ModelLoadError`."""
    entries = read_json(folder / "modules.json")
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise ModelLoadError(f"{folder / 'modules.json'} must hold a list of modules.")
    modules: list[Module] = []
    for entry in entries:
        module = _module(folder, entry)
        modules += _routed(folder, module) if module.kind == "Router" else [module]
    return modules


def _routed(folder: Path, router: Module) -> list[Module]:
    """The document's modules of a Router, after its query's SparseStaticEmbedding.

    That is the one use of a Router which is supported: an inference-free query side.
    """
    structure = router.config.get("structure") or {}
    types = router.config.get("types") or {}
    try:
        routes = {
            str(name): [
                _module(folder, {"type": types[key], "path": str(Path(router.folder) / key)})
                for key in keys
            ]
            for name, keys in structure.items()
        }
    except (AttributeError, KeyError, TypeError):
        raise ModelLoadError(f"{folder / router.folder}: the Router's config is broken.") from None
    kinds = {name: [module.kind for module in modules] for name, modules in routes.items()}
    if set(routes) != {"query", "document"} or kinds["query"] != ["SparseStaticEmbedding"]:
        raise ModelLoadError(
            f"modules.json: a Router with the routes {kinds} is not supported. Supported: a query "
            "that is one SparseStaticEmbedding, beside a document's modules."
        )
    default = (router.config.get("parameters") or {}).get("default_route") or "document"
    (query,) = routes["query"]
    own = {**query.config, "default_route": default}
    return [Module(query.kind, query.folder, own), *routes["document"]]


def _module(folder: Path, entry: Any) -> Module:
    path = folder / "modules.json"
    try:
        type_path, inner = str(entry["type"]), str(entry.get("path", ""))
    except (AttributeError, KeyError, TypeError):
        raise ModelLoadError(f"{path}: {entry!r} is not a module.") from None
    if type_path == _ADAPTED and read_object(folder / "config.json").get("lora_adaptations"):
        type_path = "sentence_transformers.models.Transformer"
    if not type_path.startswith(("sentence_transformers.", "pylate.")):
        raise ModelLoadError(
            f"{path}: module type {type_path!r} is code of the model repository, which never runs."
        )
    if not (folder / inner).resolve().is_relative_to(folder.resolve()):
        raise ModelLoadError(f"{path}: module folder {inner!r} is outside the model folder.")
    kind = type_path.rpartition(".")[2]
    name = "config.json"
    if kind in _TRANSFORMERS:
        name = next((n for n in _SETTINGS_FILES if (folder / inner / n).is_file()), name)
        config = {} if name == "config.json" else read_object(folder / inner / name)
    elif kind == "Router" and (folder / inner / _ROUTER).is_file():
        config = read_object(folder / inner / _ROUTER)
    else:
        config = read_object(folder / inner / name)
    if kind == "Pooling" and not (folder / inner / name).is_file():
        raise ModelLoadError(
            f"{folder / inner / name} is missing, so how the model is pooled is not known."
        )
    return Module(kind, inner, config)


def transformer_folder(folder: Path) -> Path:
    """Where config.json, weights and tokenizer lie: `folder`, or below it in early models."""
    if not (folder / "modules.json").is_file():
        return folder
    first = (*_TRANSFORMERS, "StaticEmbedding")
    inner = [folder / one.folder for one in read_modules(folder) if one.kind in first]
    names = ("config.json", "tokenizer.json")
    return inner[0] if inner and any((inner[0] / n).is_file() for n in names) else folder


def pooling_modes(config: dict[str, Any]) -> tuple[PoolingMode, ...]:
    """The modes of a Pooling module's config, in the order in which they are concatenated.

    The new form is `pooling_mode`, a name or a list in the wanted order; the old one is a flag for
    each mode in a fixed order. As in the reference, no mode at all is the mean.
    """
    if "pooling_mode" in config:
        value = config["pooling_mode"]
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names:
            raise ModelLoadError(f"Pooling config: pooling_mode {value!r} is not understood.")
        for name in names:
            if name not in MODES:
                raise ModelLoadError(
                    f"Pooling config: unknown pooling_mode {name!r}. Known: {sorted(MODES)}."
                )
        return tuple(MODES[name] for name in names)
    wanted = [key for key, on in config.items() if key.startswith("pooling_mode_") and on]
    unknown = sorted(set(wanted) - set(_FLAGS))
    if unknown:
        raise ModelLoadError(
            f"Pooling config: unknown {', '.join(unknown)}. Known: {list(_FLAGS)}."
        )
    return tuple(mode for flag, mode in _FLAGS.items() if flag in wanted) or ("mean",)


def dense_config(module: Module) -> DenseConfig:
    """A Dense module. Without `activation_function` it is tanh, with null the identity."""
    config, where = module.config, f"{module.folder}/config.json"
    for key in ("in_features", "out_features"):
        value = config.get(key)
        if type(value) is not int or not 1 <= value <= MAX_WIDTH:
            raise ModelLoadError(
                f"{where}: {key} must be an integer from 1 to {MAX_WIDTH}, not {value!r}."
            )
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    return DenseConfig(
        folder=module.folder,
        in_features=config["in_features"],
        out_features=config["out_features"],
        bias=bool(config.get("bias", True)),
        activation="identity"
        if activation is None
        else from_class_path(activation, where=f"{where}, activation_function"),
        residual=bool(config.get("use_residual", False)),
    )


def sparse_config(module: Module, query: Module | None) -> SparseConfig:
    """A SpladePooling module, and the SparseStaticEmbedding of its query side if there is one."""
    strategy = module.config.get("pooling_strategy", "max")
    activation = module.config.get("activation_function", "relu")
    if strategy not in ("max", "sum") or activation not in ("relu", "log1p_relu"):
        raise ModelLoadError(
            f"{module.folder}/config.json: pooling_strategy {strategy!r} with activation_function "
            f"{activation!r} is not understood."
        )
    if query is None:
        return SparseConfig(cast(Any, strategy), cast(Any, activation))
    if query.config.get("path"):
        raise ModelLoadError(
            f"{query.folder}/config.json: weights in {query.config['path']!r} are not supported; "
            "load the model with sentence-transformers once and save it again."
        )
    side = query.config["default_route"]
    if side not in ("query", "document"):
        raise ModelLoadError(f"The Router's default_route {side!r} is none of its routes.")
    return SparseConfig(
        cast(Any, strategy),
        cast(Any, activation),
        query_weights=query.folder,
        default_side=cast(Any, side),
    )
