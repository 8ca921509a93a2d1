"""Rerankers that are language models: which tokens' logits are their score, and which prompt they
want. Found by what a folder says, so that nobody has to type it.

It knows no weights and no prompt's words. The signals, best first: sentence-transformers'
`LogitScore` module; `classifier_from_token` in config.json; the model's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cenote.config.engine import EngineConfig
from cenote.config.fields import Raw
from cenote.config.sentence_transformers import Module, read_modules
from cenote.errors import ModelLoadError

METHODS = ("from_2_way_softmax", "no_post_processing")

# The template of a folder with a LogitScore module is the folder's own chat template.
OWN_TEMPLATE = "own"


@dataclass(frozen=True, slots=True)
class RerankerConfig:
    """How a language model's checkpoint becomes a scorer of pairs.

    `tokens`: vocabulary entries (or their ids) whose rows of the output matrix are the classes;
    empty: the checkpoint has a score head. `difference`: they are [negative, positive], and the one
    score is the difference of their logits, whose sigmoid is the positive share of a softmax over
    the two. `template` names the prompt (None: not known). `template_kwargs` go to it.
    """

    tokens: tuple[str | int, ...] = ()
    difference: bool = False
    template: str | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each class."""
        kept = self.tokens[1:] if self.difference else self.tokens
        return tuple(str(token) for token in kept)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A released reranker: its family, its names, and what it was trained to answer (nothing: it
    has a score head)."""

    family: str
    names: re.Pattern[str]
    tokens: tuple[str, ...]


_KINDS: dict[str, _Kind] = {
    "qwen3": _Kind("Qwen3", re.compile(r"qwen3[-_]reranker"), ("no", "yes")),
    "bge-gemma": _Kind("Gemma", re.compile(r"bge[-_]reranker[-_]v2[-_]gemma"), ("Yes",)),
    "mxbai-v2": _Kind("Qwen2", re.compile(r"mxbai[-_]rerank[-_](\w+[-_])?v2"), ("0", "1")),
    "nemotron": _Kind("LlamaBidirectional", re.compile(r"nemotron[-_]rerank|nv[-_]rerankqa"), ()),
}


def load_reranker(
    folder: Path, hf: Raw, architecture: str, *, name: str, engine: EngineConfig
) -> RerankerConfig | None:
    """The reranker that `folder` holds, None where it holds something else.

    `architecture` and `hf` are its config.json's, `name` is what the user called it. Raises
    `ModelLoadError` for settings that contradict each other.
    """
    if engine.reranker == "off":
        return None
    if engine.reranker != "auto":
        return _forced(engine.reranker, architecture)
    modules = read_modules(folder)
    logits = next((module for module in modules if module.kind == "LogitScore"), None)
    if logits is not None:
        return _from_logit_score(logits, modules)
    named = next((kind for kind in _KINDS if _is_named(kind, folder, hf, architecture, name)), None)
    if hf.get("classifier_from_token") is not None or hf.get("is_original_qwen3_reranker"):
        return _from_config(hf, architecture, named)
    # A folder that says how it is pooled was trained to embed, whatever it was made from.
    if named is None or any(module.kind == "Pooling" for module in modules):
        return None
    return _of_kind(named, architecture)


def _forced(kind: str, architecture: str) -> RerankerConfig:
    if not architecture.startswith(f"{_KINDS[kind].family}For"):
        raise ModelLoadError(
            f"reranker={kind} is made of {_KINDS[kind].family}, but the model is {architecture}.",
            param="reranker",
        )
    return _of_kind(kind, architecture)


def _of_kind(kind: str, architecture: str) -> RerankerConfig:
    if architecture.endswith("Classification"):
        return RerankerConfig(template=kind)
    tokens = _KINDS[kind].tokens
    return RerankerConfig(tokens, len(tokens) == 2, kind)


def _is_named(kind: str, folder: Path, hf: Raw, architecture: str, name: str) -> bool:
    """Whether one of a model's names is that of a kind, and its family that kind's."""
    known = _KINDS[kind]
    if not architecture.startswith(f"{known.family}For"):
        return False
    # A hub cache's folders are named after commits.
    place = folder.parent.parent.name if folder.parent.name == "snapshots" else folder.name
    names = (name.rpartition("/")[2], place, str(hf.get("_name_or_path", "")), _base_model(folder))
    return any(known.names.search(text.lower()) for text in names)


def _base_model(folder: Path) -> str:
    """What the model card says that the model was made from, "" where it doesn't."""
    try:
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    front = card.split("---", 2)[1] if card.startswith("---") else ""
    found = re.search(r"^base_model:\s*(?:-\s*)?(\S+)", front, re.MULTILINE)
    return found[1] if found else ""


def _from_logit_score(module: Module, modules: Sequence[Module]) -> RerankerConfig:
    positive, negative = (module.config.get(f"{side}_token_id") for side in ("true", "false"))
    if not isinstance(positive, int) or not isinstance(negative, int | None):
        raise ModelLoadError(
            f"{module.folder}/config.json: true_token_id {positive!r} and false_token_id "
            f"{negative!r} must be token ids."
        )
    settings = (item.config.get("processing_kwargs") for item in modules)
    kwargs = next((item for item in settings if isinstance(item, Mapping)), {})
    return RerankerConfig(
        tokens=(positive,) if negative is None else (negative, positive),
        difference=negative is not None,
        template=OWN_TEMPLATE,
        template_kwargs=dict(kwargs.get("chat_template") or {}),
    )


def _from_config(hf: Raw, architecture: str, named: str | None) -> RerankerConfig:
    tokens = hf.get("classifier_from_token") or list(_KINDS["qwen3"].tokens)
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ModelLoadError(
            f"config.json: classifier_from_token must be a list of tokens, not {tokens!r}."
        )
    default = METHODS[0] if hf.get("is_original_qwen3_reranker") else METHODS[1]
    method = hf.get("method") or default
    if method not in METHODS:
        raise ModelLoadError(
            f"config.json: method {method!r} is unknown; known: {', '.join(METHODS)}."
        )
    difference = method == METHODS[0]
    if difference and len(tokens) != 2:
        raise ModelLoadError(
            f"config.json: method {method} needs two tokens in classifier_from_token, the negative "
            f"one first, not {tokens!r}."
        )
    answers = (
        kind
        for kind, known in _KINDS.items()
        if known.tokens == tuple(tokens) and architecture.startswith(f"{known.family}For")
    )
    return RerankerConfig(tuple(tokens), difference, named or next(answers, None))
