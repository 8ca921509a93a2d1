#!/usr/bin/env python
"""Writes the tables of docs/ that are made from the code, between their begin and end marks.

    .venv/bin/python scripts/write_docs.py

tests/docs fails when a table is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel

DOCS = Path(__file__).resolve().parents[1] / "docs"
MARK = re.compile(r"(<!-- begin: (\w+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


def flags(config: type) -> str:
    """Every field of a config as its flag, its type, its default and its help."""
    from cenote.cli.args import option_names

    hints = get_type_hints(config)
    return table(
        ("flag", "type", "default", "meaning"),
        (
            (
                f"`{option_names(item, hints[item.name])[0]}`",
                f"`{type_name(hints[item.name])}`",
                f"`{item.default}`",
                item.metadata["help"],
            )
            for item in fields(config)
        ),
    )


def type_name(hint: Any) -> str:
    """A type as a reader writes it: `int | None`, `auto | float32`."""
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    text = re.sub(r"typing\.Literal\[([^\]]*)\]", lambda m: m[1].replace(", ", " | "), text)
    return text.replace("typing.", "").replace("NoneType", "None").replace("'", "")


def request_fields(body: type[BaseModel]) -> str:
    """Every field of a request body."""
    schema = body.model_json_schema()
    required = set(schema.get("required", ()))
    rows = []
    for name, item in sorted(
        schema["properties"].items(), key=lambda pair: pair[0] not in required
    ):
        default = "required" if name in required else f"`{json_word(item.get('default'))}`"
        rows.append((f"`{name}`", json_type(item), default, item.get("description", "")))
    return table(("field", "type", "default", "meaning"), rows)


def json_word(value: Any) -> str:
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def json_type(item: dict[str, Any]) -> str:
    """The type of a JSON schema in words."""
    if "enum" in item:
        return " | ".join(f"`{value}`" for value in item["enum"])
    if "anyOf" in item:
        return " | ".join(dict.fromkeys(json_type(part) for part in item["anyOf"]))
    if item.get("type") == "array":
        return f"list of {json_type(item['items'])}" if "items" in item else "list"
    return str(item.get("type", "any"))


def errors() -> str:
    """Every error that a request can get, from the classes and from what HTTP itself brings."""
    from cenote.errors import CenoteError, ModelLoadError
    from cenote.server.error_handlers import HTTP_CODES, TYPES

    rows = [
        (cls.status, cls.code, (cls.__doc__ or "").split("\n")[0])
        for cls in subclasses(CenoteError)
        if cls is not ModelLoadError
    ]
    rows += [(status, code, "From HTTP itself.") for status, code in HTTP_CODES.items()]
    return table(
        ("status", "code", "type", "meaning"),
        (
            (str(status), f"`{code}`", f"`{TYPES.get(status, 'server_error')}`", text)
            for status, code, text in sorted(rows)
        ),
    )


def subclasses(cls: type) -> list[Any]:
    """A class and all that derive from it."""
    return [cls, *(item for child in cls.__subclasses__() for item in subclasses(child))]


def metrics() -> str:
    """Every metric of /metrics with its labels."""
    from cenote.server.metrics import Metrics

    rows = []
    for collector in Metrics().registry._collector_to_names:
        for metric in collector.describe() or ():
            labels = ", ".join(f"`{name}`" for name in getattr(collector, "_labelnames", ()))
            suffix = "_total" if metric.type == "counter" else ""
            rows.append((f"`{metric.name}{suffix}`", metric.type, labels, metric.documentation))
    return table(("metric", "kind", "labels", "meaning"), rows)


def variables() -> str:
    """Every environment variable."""
    from cenote.config import env

    return table(
        ("variable", "default", "meaning"),
        (
            (f"`{item.name}`", f"`{item.default}`" if item.default else "", _with_choices(item))
            for item in (*env.OWN, *env.HUGGING_FACE)
        ),
    )


def _with_choices(item: Any) -> str:
    return f"{item.help} One of {', '.join(item.choices)}." if item.choices else str(item.help)


# What a model's head offers, and the reference that its tests compare with.
HEADS: dict[str | None, tuple[str, str]] = {
    None: ("`embed`, `token_embed`; a ColBERT model: `token_embed`", "sentence-transformers"),
    "classify": ("`classify`; with one label it scores: a cross-encoder", "sentence-transformers"),
    "token_classify": ("`token_classify`", "transformers"),
    "vocab": ("`sparse_embed` (SPLADE)", "sentence-transformers"),
}

# Architectures that offer something else than their head's usual tasks.
OWN_TASKS: dict[str, tuple[str, str]] = {
    "Qwen2ForRewardModel": ("`classify`: the reward, as it is", "transformers"),
    "Qwen2ForProcessRewardModel": (
        "`token_classify` at the tokens that end steps",
        "transformers",
    ),
    "Lfm2Model": (
        "`embed`; a ColBERT model: `token_embed`; as a known reranker (below): `classify`, scores",
        "sentence-transformers",
    ),
    "JinaForRanking": ("scores: a listwise reranker; `token_embed` at its markers", "transformers"),
}

# Families that no library has without code from a model repository.
FORMULAS = {
    "jina_bert": "the papers' formulas",
    "mistral_bidirectional": "transformers without the causal mask",
    "nv_embed": "the paper's formula",
}


def architectures() -> str:
    """Every architecture that can be served."""
    from cenote.models.registry import ARCHITECTURES, model_info

    rows = []
    for name, place in ARCHITECTURES.items():
        info = model_info(name)
        tasks, reference = OWN_TASKS.get(name, HEADS[info.head])
        if info.causal and info.head is None and name not in OWN_TASKS:
            tasks = "`embed`; as a known reranker (below): `classify`, scores"
        module = place.partition(":")[0].rpartition(".")[2]
        reference = FORMULAS.get(module, reference)
        rows.append((f"`{name}`", tasks, reference, f"`models/{module}.py`"))
    return table(("architecture", "tasks", "reference", "file"), rows)


def tables() -> dict[str, Callable[[], str]]:
    """What stands between the marks, by the name in the mark."""
    from cenote.config.engine import EngineConfig
    from cenote.config.server import ServerConfig
    from cenote.server.schemas.classify import ClassifyRequest
    from cenote.server.schemas.embed import EmbeddingRequest
    from cenote.server.schemas.pooling import PoolingRequest
    from cenote.server.schemas.rerank import RerankRequest
    from cenote.server.schemas.score import ScoreRequest
    from cenote.server.schemas.tokenize import DetokenizeRequest, TokenizeRequest

    bodies: dict[str, type[BaseModel]] = {
        "embeddings": EmbeddingRequest,
        "classify": ClassifyRequest,
        "pooling": PoolingRequest,
        "score": ScoreRequest,
        "rerank": RerankRequest,
        "tokenize": TokenizeRequest,
        "detokenize": DetokenizeRequest,
    }
    made: dict[str, Callable[[], str]] = {
        "engine_flags": lambda: flags(EngineConfig),
        "server_flags": lambda: flags(ServerConfig),
        "errors": errors,
        "metrics": metrics,
        "architectures": architectures,
        "variables": variables,
    }
    return made | {name: (lambda body=body: request_fields(body)) for name, body in bodies.items()}


def filled(text: str) -> str:
    """A page with its tables made anew. Raises KeyError for a mark that nothing is made for."""
    made = tables()
    return MARK.sub(lambda match: match[1] + made[match[2]]() + match[3], text)


def main() -> None:
    for page in sorted(DOCS.glob("*.md")):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
