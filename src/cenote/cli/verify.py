"""`cenote verify`: our results against the reference's on this machine, the same weights.

It knows what is compared and how close it has to be; `references` knows the libraries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, cast

import numpy as np
import typer

from cenote.cli.args import with_flags
from cenote.cli.console import note, stderr
from cenote.cli.offline import open_model
from cenote.cli.ranking import Ranking, agreement
from cenote.cli.references import Array, Kind, kind_of, results_of
from cenote.cli.workload import make_texts
from cenote.config.engine import DTypeName, EngineConfig
from cenote.config.static import MODEL_TYPE
from cenote.errors import CenoteError

DType = Literal["float32", "bfloat16"]
Form = Literal["float32", "bfloat16", "int8", "int8-mixed"]

# Largest difference of one number in vectors of length one (longer ones are scaled to it), and the
# least cosine of two vectors.
BOUNDS: dict[Form, tuple[float, float]] = {
    "float32": (1e-5, 1 - 1e-6),
    "bfloat16": (2e-2, 0.9995),
    "int8-mixed": (1e-1, 0.98),
    "int8": (1e-1, 0.97),
}
DTYPES: tuple[DType, ...] = ("float32", "bfloat16")

# With quantised products: passages whose nearest neighbours are compared.
RANKED_TEXTS = 200
LEAST_MEDIAN_COSINE = 0.99

QUERY = "What is the capital of France?"
TEXTS = (
    "Paris is the capital of France.",
    "A cenote is a natural pit that exposes groundwater.",
    "a",
    "",
    "Ça va? Größe, naïve, Łódź, smörgåsbord.",
    "東京は日本の首都です。 서울은 대한민국의 수도이다.",
    "Москва — столица России. القاهرة عاصمة مصر",
    "🙂🚀 emoji and 👩‍👩‍👧 sequences",
    "tab\there, bell\x07, zero\u200bwidth, nul\x00 and a line\nbreak",
    "def f(x):\n    return {'a': [x ** 2, -1e-9]}",
    " ".join(["word"] * 90),
    " ".join(f"sentence number {n}." for n in range(300)),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two sets of results are apart."""

    form: Form
    largest: float
    cosine: float
    ranking: Ranking | None = None

    @property
    def within(self) -> bool:
        most, least = BOUNDS[self.form]
        usual = 1.0 if self.ranking is None else self.ranking.median_cosine
        return self.largest <= most and self.cosine >= least and usual >= LEAST_MEDIAN_COSINE


@with_flags(leave_out=("model", "dtype"), engine=EngineConfig)
def verify(
    model: Annotated[str, typer.Argument(help="A folder, a hub id or a built-in name.")] = "minilm",
    dtype: Annotated[
        Literal["both", "float32", "bfloat16"], typer.Option(help="Number formats to check.")
    ] = "both",
    *,
    engine: EngineConfig,
) -> None:
    """Compare with sentence-transformers on this machine; exit code 1 when out of bounds.

    Embedding models, rerankers, ColBERT models, sparse models, classifiers of texts and of tokens.
    These two, and rerankers known by their prompt, are compared with transformers.
    With --quantization: what that gives, and for embeddings also how far neighbours stay the same.
    """
    from cenote.loader.hub import resolve

    folder = resolve(model, engine.revision).folder
    quantized = None if engine.quantization == "none" else engine.quantization
    dtypes = DTYPES if dtype == "both" and not quantized else (dtype,)
    differences = []
    expected: list[Array] | None = None
    for name in dtypes:
        wanted: DTypeName = "auto" if name == "both" else name
        form = quantized or cast(Form, name)
        with open_model(replace(engine, model=model, dtype=wanted)) as llm:
            kind = kind_of(llm)
            texts = _texts(llm, kind)
            expected = expected or results_of(folder, llm, kind, QUERY, texts)
            differences.append(_compare(form, _ours(llm, kind, texts), expected))
    _report(model, kind, differences)
    if not all(item.within for item in differences):
        raise typer.Exit(1)


def _ours(llm: Any, kind: Kind, texts: Sequence[str]) -> list[Array]:
    if kind == "embed":
        return [item.embedding for item in llm.embed(texts, truncate_prompt_tokens=-1)]
    if kind == "sparse":
        query = llm.encode(QUERY, input_type="query")
        documents = llm.encode(texts, input_type="document", truncate_prompt_tokens=-1)
        rows = np.zeros((len(texts) + 1, llm.model_config.vocab_size), np.float32)
        for row, item in zip(rows, (*query, *documents), strict=True):
            row[item.token_ids] = item.weights
        return list(rows)
    if kind == "classify":
        return [item.probs for item in llm.classify(texts, truncate_prompt_tokens=-1)]
    if kind == "token_classify":
        items = llm.encode(texts, task=kind, truncate_prompt_tokens=-1)
        return [item.probs for item in items]
    if kind == "prompted_reranker":
        return [np.array([item.score], np.float32) for item in llm.score(QUERY, texts)]
    if kind == "cross_encoder":
        scores = llm.score(QUERY, texts, truncate_prompt_tokens=-1)
        return [np.array([item.score], np.float32) for item in scores]
    query = llm.encode([QUERY], task="token_embed", input_type="query")
    documents = llm.encode(
        texts, task="token_embed", input_type="document", truncate_prompt_tokens=-1
    )
    return [item.embeddings for item in (*query, *documents)]


def _texts(llm: Any, kind: Kind) -> list[str]:
    """The texts that the model takes: a static one has nothing to say of an empty text. Quantised
    embeddings also get the passages that are ranked. What a reranker's prompt is cut to is not the
    reference's matter, so there only texts are compared that fit in any case."""
    texts = [text for text in TEXTS if text or llm.model_config.model_type != MODEL_TYPE]
    if kind == "prompted_reranker":
        texts = [text for text in texts if len(text) < llm.model_config.max_model_len // 4]
    if kind == "embed" and llm.config.quantization != "none":
        texts += make_texts("passages", RANKED_TEXTS, seed=2)
    return texts


def _compare(form: Form, ours: Sequence[Array], theirs: Sequence[Array]) -> Difference:
    """Both as lists of vectors or of matrices with one vector a row."""
    largest, cosine = 0.0, 1.0
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape:
            raise CenoteError(
                f"Result {index} has shape {mine.shape}; the reference has {other.shape}."
            )
        left, right = np.atleast_2d(mine).astype(float), np.atleast_2d(other).astype(float)
        if not left.size:
            continue
        scale = max(1.0, float(np.linalg.norm(right, axis=1).max()))
        largest = max(largest, float(np.abs(left - right).max()) / scale)
        norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        if left.shape[1] > 1:
            cosine = min(cosine, float(((left * right).sum(axis=1) / norms).min()))
    ranked = len(ours) > RANKED_TEXTS
    ranking = agreement(ours[-RANKED_TEXTS:], theirs[-RANKED_TEXTS:]) if ranked else None
    return Difference(form, largest, cosine, ranking)


def _report(model: str, kind: Kind, differences: Sequence[Difference]) -> None:
    from rich.table import Table

    table = Table("dtype", "largest difference", "allowed", "least cosine", "wanted", "")
    for item in differences:
        most, least = BOUNDS[item.form]
        verdict = "[green]ok[/]" if item.within else "[bold red]out of bounds[/]"
        table.add_row(
            item.form,
            f"{item.largest:.2e}",
            f"{most:.0e}",
            f"{item.cosine:.7f}",
            str(least),
            verdict,
        )
    stderr.print(table)
    results: dict[str, dict[str, object]] = {}
    for item in differences:
        seen: dict[str, object] = {
            "max_abs": item.largest,
            "min_cosine": item.cosine,
            "ok": item.within,
        }
        if item.ranking is not None:
            found = item.ranking
            note(
                f"{RANKED_TEXTS} passages: median cosine {found.median_cosine:.5f}; the nearest "
                f"neighbour stays for {found.top1:.1%}, and {found.top10:.1%} of the nearest ten"
            )
            seen |= asdict(found)
        results[item.form] = seen
    typer.echo(json.dumps({"model": model, "kind": kind, "results": results}))
