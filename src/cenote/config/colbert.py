"""Late-interaction settings in each form in use: Stanford, Jina, PyLate, sentence-transformers.

Stanford and Jina write `artifact.metadata`; PyLate writes flat keys into
`config_sentence_transformers.json`; sentence-transformers ≥ 5.5 keeps them in the Transformer's own
settings and a MultiVectorMask module. It knows no weights and no tokenizer.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cenote.config import fields
from cenote.config.files import read_object
from cenote.config.pooling import ColbertConfig
from cenote.config.sentence_transformers import Module
from cenote.errors import ModelLoadError

_METADATA = "artifact.metadata"
_DIM = ("dim", "colbert_dim", "projection_dim")
_DEFAULT_DIM = 128
_PUNCTUATION = tuple(string.punctuation)

# Any of these in config_sentence_transformers.json makes a model PyLate's.
_PYLATE_KEYS = frozenset(
    {
        "query_length",
        "document_length",
        "query_prefix",
        "document_prefix",
        "do_query_expansion",
        "attend_to_expansion_tokens",
        "skiplist_words",
    }
)

Raw = Mapping[str, Any]


def load_colbert_config(
    folder: Path, hf: Raw, settings: Raw, modules: Sequence[Module], *, limit: int
) -> ColbertConfig | None:
    """The two sides' settings, or None for a model that isn't a late-interaction model.

    `settings` is config_sentence_transformers.json; `limit` is the length of a side that the files
    leave open. Raises `ModelLoadError` for settings that can't be followed.
    """
    kinds = {module.kind for module in modules}
    if (folder / _METADATA).is_file() or _is_stanford(hf):
        return _stanford(read_object(folder / _METADATA), hf)
    if "MultiVectorMask" in kinds:
        return _native(modules, hf, limit)
    if settings.get("model_type") == "ColBERT" or _PYLATE_KEYS & settings.keys():
        return _pylate(settings, modules, hf, limit)
    return None


def _is_stanford(hf: Raw) -> bool:
    return "HF_ColBERT" in (hf.get("architectures") or ())


def _stanford(metadata: Raw, hf: Raw) -> ColbertConfig:
    """Stanford ColBERT's own file; queries are always expanded. Defaults are those of its paper.

    Khattab and Zaharia, ColBERT, SIGIR 2020; Santhanam et al., ColBERTv2, NAACL 2022.
    """
    if metadata.get("similarity", "cosine") != "cosine":
        raise ModelLoadError(
            f"{_METADATA}: similarity {metadata['similarity']!r} is not supported."
        )
    default = ColbertConfig(dim=_DEFAULT_DIM)
    return ColbertConfig(
        dim=_count({**hf, **metadata}, _DIM, _DEFAULT_DIM),
        query_marker=_text(metadata, "query_token_id", default.query_marker),
        document_marker=_text(metadata, "doc_token_id", default.document_marker),
        query_length=_count(metadata, ("query_maxlen",), default.query_length),
        document_length=_count(metadata, ("doc_maxlen",), default.document_length),
        attend_to_expansion_tokens=bool(metadata.get("attend_to_mask_tokens", False)),
        skiplist=_PUNCTUATION if metadata.get("mask_punctuation", True) else (),
    )


def _pylate(settings: Raw, modules: Sequence[Module], hf: Raw, limit: int) -> ColbertConfig:
    words = settings.get("skiplist_words")
    attend = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
    expand = settings.get("do_query_expansion", True) is not False
    # An absent prefix is PyLate's default; a null one is none.
    return ColbertConfig(
        dim=_projected(modules, hf),
        query_marker=_text({"query_prefix": "[Q] ", **settings}, "query_prefix", ""),
        document_marker=_text({"document_prefix": "[D] ", **settings}, "document_prefix", ""),
        query_length=_count(settings, ("query_length",), 32 if expand else limit),
        document_length=_count(settings, ("document_length",), limit),
        do_query_expansion=expand,
        attend_to_expansion_tokens=bool(attend),
        skiplist=_PUNCTUATION if words is None else _words(words),
    )


def _native(modules: Sequence[Module], hf: Raw, limit: int) -> ColbertConfig:
    """sentence-transformers' MultiVectorEncoder; its markers are text in the model's prompts."""
    own = next((m.config for m in modules if m.kind == "Transformer"), {})
    mask = next(m.config for m in modules if m.kind == "MultiVectorMask")
    if mask.get("keep_only_token_ids") or mask.get("skiplist_tasks", ["document"]) != ["document"]:
        raise ModelLoadError(
            "MultiVectorMask: keep_only_token_ids, and skiplist_tasks other than ['document'], are "
            "not supported."
        )
    expansion = own.get("query_expansion") or {}
    if not isinstance(expansion, Mapping):
        raise ModelLoadError(f"query_expansion must be a map, not {expansion!r}.")
    strategy = expansion.get("strategy", "fixed")
    if strategy not in ("fixed", "min"):
        raise ModelLoadError(f"query_expansion: strategy {strategy!r} is not supported.")
    width = _count(expansion, ("length",), 32) if expansion else None
    cut = _count(own, ("query_length",), limit)
    return ColbertConfig(
        dim=_projected(modules, hf),
        query_marker="",
        document_marker="",
        query_length=width if width is not None and strategy == "fixed" else cut,
        document_length=_count(own, ("document_length",), limit),
        do_query_expansion=bool(expansion),
        attend_to_expansion_tokens=bool(expansion.get("attend", False)),
        skiplist=_words(mask.get("skiplist_words") or []),
        expansion_length=width if strategy == "min" else None,
        expansion_token=_text(expansion, "token", "") or None,
    )


def _projected(modules: Sequence[Module], hf: Raw) -> int:
    """The size of a token vector: the last projection's, or the hidden size without one."""
    sizes = [module.config.get("out_features") for module in modules if module.kind == "Dense"]
    if sizes and isinstance(sizes[-1], int):
        return sizes[-1]
    return fields.positive_int(fields.text_part(hf), fields.HIDDEN_SIZE)


def _text(values: Raw, name: str, default: str) -> str:
    value = values.get(name)
    if not isinstance(value, str | None):
        raise ModelLoadError(f"Late-interaction settings: {name} must be a string, not {value!r}.")
    return value or default


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ModelLoadError(
            f"Late-interaction settings: skiplist_words must be a list of strings, not {value!r}."
        )
    return tuple(value)


def _count(values: Raw, names: tuple[str, ...], default: int) -> int:
    value = fields.first(values, names)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelLoadError(
            f"Late-interaction settings: {names[0]} must be a positive integer, not {value!r}."
        )
    return value
