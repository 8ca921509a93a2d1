"""Scores from an embedding model: each distinct text is encoded once, then compared.

Queries get the model's query prompt and documents its document prompt, if it has them, as
sentence-transformers' `encode_query` and `encode_document` do; a request's `prompt` or
`prompt_name` takes the query prompt's place. The similarity is the model's own.

A model of several outputs may be asked for the weighted mean of their scores, all from one forward
pass (BGE-M3: Chen et al. 2024, arXiv:2402.03216, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np

from cenote.config.pooling import Similarity
from cenote.engine.messages import EngineOutput
from cenote.errors import InvalidRequest
from cenote.outputs import Score
from cenote.params import Task
from cenote.processors import results
from cenote.processors.inputs import PromptOptions, ScoreInput
from cenote.processors.prepare import Preparer, TokenPrompt, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import adapter_for, side_prefix
from cenote.processors.score.limits import LimitedText
from cenote.processors.score.sides import read_sides, refuse_fields
from cenote.processors.score.similarity import Floats, similarity, sparse_similarity
from cenote.processors.validation import check_type

Pairs = Sequence[tuple[int, int]]


def score(preparer: Preparer, request: ScoreInput) -> Prepared[list[Score]]:
    """Prepares the distinct texts of a score request as embeddings.

    A result's `prompt_tokens` counts a text at the first pair that uses it, so that the sum over
    the results is what ran.
    """
    refuse_fields(request, "a bi-encoder", "instruction", "explain", "input_type", "chat_template")
    options = request.options
    weights = _checked(request.score_weights)
    task, *also = weights
    params = preparer.params(task, options, also=also)
    sides = read_sides(preparer, request)
    queries, query_rows = _distinct(preparer, sides.queries, options, "query")
    documents, document_rows = _distinct(preparer, sides.documents, options, "document")
    prompts = queries + documents
    pairs = [
        (query_rows[query], len(queries) + document_rows[document])
        for query, document in sides.pairs
    ]
    cut = [sides.is_cut(pair) for pair in sides.pairs]
    kind = preparer.config.pooler.similarity

    def finish(outputs: list[EngineOutput]) -> list[Score]:
        # One list of outputs for each task.
        made = zip(*((output, *(output.more or ())) for output in outputs), strict=True)
        each = [
            weight * _SCORES[task](kind, own, pairs)
            for (task, weight), own in zip(weights.items(), made, strict=True)
        ]
        scores = np.sum(each, axis=0) / sum(weights.values())
        tokens = count_once(prompts, pairs)
        return [
            Score(
                score=float(scores[index]),
                prompt_tokens=tokens[index],
                truncated=cut[index] or prompts[a].truncated or prompts[b].truncated,
            )
            for index, (a, b) in enumerate(pairs)
        ]

    adapters = [
        adapter_for(preparer.config, options, side)
        for side, texts in (("query", queries), ("document", documents))
        for _ in texts
    ]
    requests = preparer.requests(prompts, per_prompt(params, prompts), options, adapters)
    return Prepared(requests, finish)


def _checked(weights: Mapping[str, float] | None) -> dict[Task, float]:
    """The outputs that a request scores by, with their weights. Raises `InvalidRequest`."""
    if weights is None:
        return {"embed": 1.0}
    param = "score_weights"
    check_type(weights, param, Mapping, "an object of numbers")
    unknown = [name for name in weights if name not in _SCORES]
    if unknown or not weights:
        raise InvalidRequest(
            f"{param} must have one or more of {list(_SCORES)}, not {unknown or 'nothing'}.",
            param=param,
        )
    for name, value in weights.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < inf:
            raise InvalidRequest(
                f"{param}.{name} must be a number above 0, not {value!r}.", param=param
            )
    return {task: float(weights[task]) for task in _SCORES if task in weights}


def _dense(kind: Similarity, outputs: Sequence[EngineOutput], pairs: Pairs) -> Floats:
    vectors = np.stack([output.array().reshape(-1) for output in outputs]).astype(np.float32)
    left, right = np.array(pairs, dtype=np.intp).T
    return similarity(kind, vectors[left], vectors[right])


def _lexical(kind: Similarity, outputs: Sequence[EngineOutput], pairs: Pairs) -> Floats:
    """Dot products of sparse vectors, whatever the dense ones are compared by."""
    weights = [
        (results.positions(output), output.array().reshape(-1).astype(np.float32))
        for output in outputs
    ]
    scores = [sparse_similarity("dot", weights[a], weights[b]) for a, b in pairs]
    return np.array(scores, dtype=np.float32)


def _multi_vector(kind: Similarity, outputs: Sequence[EngineOutput], pairs: Pairs) -> Floats:
    """The mean over a query's vectors of their largest dot product with a document's."""
    rows = [output.array().astype(np.float32) for output in outputs]
    scores = [(rows[a] @ rows[b].T).max(axis=1).mean() for a, b in pairs]
    return np.array(scores, dtype=np.float32)


# In the order in which the engine runs them.
_SCORES: dict[Task, Callable[[Similarity, Sequence[EngineOutput], Pairs], Floats]] = {
    "embed": _dense,
    "sparse_embed": _lexical,
    "token_embed": _multi_vector,
}


def count_once(prompts: Sequence[TokenPrompt], pairs: Sequence[tuple[int, ...]]) -> list[int]:
    """Tokens that each pair added: a prompt counts at the first pair that uses it."""
    seen: set[int] = set()
    counts = []
    for pair in pairs:
        fresh = set(pair) - seen
        seen |= fresh
        counts.append(sum(len(prompts[row].token_ids) for row in fresh))
    return counts


def _distinct(
    preparer: Preparer, texts: Sequence[LimitedText], options: PromptOptions, side: str
) -> tuple[list[TokenPrompt], list[int]]:
    """The distinct texts of a side as prompts, and the row of each text among them."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(item.text for item in texts))}
    prefix = side_prefix(preparer.config, options, side)
    param = "queries" if side == "query" else "documents"
    prompts = preparer.tokenize(list(rows), options, prefix=prefix, param=param)
    return prompts, [rows[item.text] for item in texts]
