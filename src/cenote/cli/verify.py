"""`cenote verify`: our results against sentence-transformers on this machine, the same weights.

The only place that knows a reference library; it is imported when the command runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from cenote.cli.args import with_flags
from cenote.cli.console import note, stderr
from cenote.cli.offline import open_model
from cenote.config.engine import EngineConfig
from cenote.config.static import MODEL_TYPE
from cenote.errors import CenoteError, InvalidRequest

DType = Literal["float32", "bfloat16"]
Array = NDArray[np.float32]

# Largest difference of one number in vectors of length one (longer ones are scaled to it), and the
# least cosine of two vectors.
BOUNDS: dict[DType, tuple[float, float]] = {"float32": (1e-5, 1 - 1e-6), "bfloat16": (2e-2, 0.9995)}

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

    dtype: DType
    largest: float
    cosine: float

    @property
    def within(self) -> bool:
        most, least = BOUNDS[self.dtype]
        return self.largest <= most and self.cosine >= least


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

    Embedding models, cross-encoders, ColBERT models and sparse models: whatever the model is.
    """
    from cenote.loader.hub import resolve

    folder = resolve(model, engine.revision).folder
    differences = []
    expected: list[Array] | None = None
    for name in BOUNDS if dtype == "both" else (dtype,):
        with open_model(replace(engine, model=model, dtype=name)) as llm:
            kind = _kind(llm)
            normalize = llm.model_config.pooler.normalize
            expected = expected or _reference(folder, kind, _texts(llm), normalize)
            differences.append(_compare(name, _ours(llm, kind), expected))
    _report(model, kind, differences)
    if not all(item.within for item in differences):
        raise typer.Exit(1)


Kind = Literal["embed", "cross_encoder", "late_interaction", "sparse"]


def _kind(llm: Any) -> Kind:
    if llm.score_kind in ("cross_encoder", "late_interaction", "sparse"):
        return llm.score_kind  # type: ignore[no-any-return]
    if "embed" in llm.supported_tasks:
        return "embed"
    raise InvalidRequest(
        "verify compares embedding models, cross-encoders, ColBERT models and sparse models; this "
        f"one does {sorted(llm.supported_tasks)}.",
        param="model",
    )


def _ours(llm: Any, kind: Kind) -> list[Array]:
    if kind == "embed":
        return [item.embedding for item in llm.embed(_texts(llm), truncate_prompt_tokens=-1)]
    if kind == "sparse":
        query = llm.encode(QUERY, input_type="query")
        documents = llm.encode(TEXTS, input_type="document", truncate_prompt_tokens=-1)
        rows = np.zeros((len(TEXTS) + 1, llm.model_config.vocab_size), np.float32)
        for row, item in zip(rows, (*query, *documents), strict=True):
            row[item.token_ids] = item.weights
        return list(rows)
    if kind == "cross_encoder":
        scores = llm.score(QUERY, TEXTS, truncate_prompt_tokens=-1)
        return [np.array([item.score], np.float32) for item in scores]
    query = llm.encode([QUERY], task="token_embed", input_type="query")
    documents = llm.encode(
        TEXTS, task="token_embed", input_type="document", truncate_prompt_tokens=-1
    )
    return [item.embeddings for item in (*query, *documents)]


def _texts(llm: Any) -> list[str]:
    """The texts that the model takes: a static one has nothing to say of an empty text."""
    return [text for text in TEXTS if text or llm.model_config.model_type != MODEL_TYPE]


def _reference(folder: Path, kind: Kind, texts: Sequence[str], normalize: bool) -> list[Array]:
    try:
        import sentence_transformers as reference
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise CenoteError(
            "verify needs the reference library: pip install 'cenote[reference]'"
        ) from error
    disable_progress_bar()
    note(f"Running sentence-transformers {reference.__version__} in float32")
    name = str(folder)
    if kind == "embed":
        embedder = reference.SentenceTransformer(name, device="cpu")
        # A folder that doesn't say is normalised here, and not there.
        return list(embedder.encode(list(texts), normalize_embeddings=normalize))
    if kind == "sparse":
        sparse = reference.SparseEncoder(name, device="cpu")
        left, right = sparse.encode_query([QUERY]), sparse.encode_document(list(TEXTS))
        return [*left.to_dense().numpy(), *right.to_dense().numpy()]
    if kind == "cross_encoder":
        pairs = [(QUERY, text) for text in TEXTS]
        scores = reference.CrossEncoder(name, device="cpu").predict(pairs)
        return [np.array([score], np.float32) for score in scores]
    encoder = reference.MultiVectorEncoder(name, device="cpu")
    query = encoder.encode_query([QUERY], convert_to_numpy=True)
    documents = encoder.encode_document(list(TEXTS), convert_to_numpy=True)
    return [np.asarray(item) for item in (*query, *documents)]


def _compare(dtype: DType, ours: Sequence[Array], theirs: Sequence[Array]) -> Difference:
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
    return Difference(dtype, largest, cosine)


def _report(model: str, kind: Kind, differences: Sequence[Difference]) -> None:
    from rich.table import Table

    table = Table("dtype", "largest difference", "allowed", "least cosine", "wanted", "")
    for item in differences:
        most, least = BOUNDS[item.dtype]
        verdict = "[green]ok[/]" if item.within else "[bold red]out of bounds[/]"
        table.add_row(
            item.dtype,
            f"{item.largest:.2e}",
            f"{most:.0e}",
            f"{item.cosine:.7f}",
            str(least),
            verdict,
        )
    stderr.print(table)
    results = {
        item.dtype: {"max_abs": item.largest, "min_cosine": item.cosine, "ok": item.within}
        for item in differences
    }
    typer.echo(json.dumps({"model": model, "kind": kind, "results": results}))
