"""Scores from an embedding model: each distinct text is encoded once, then compared.

Queries get the model's query prompt and documents its document prompt, if it has them, as
sentence-transformers' `encode_query` and `encode_document` do; a request's `prompt` or
`prompt_name` takes the query prompt's place. The similarity is the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cenote.engine.messages import EngineOutput
from cenote.outputs import Score
from cenote.processors.inputs import PromptOptions, ScoreInput
from cenote.processors.prepare import Preparer, TokenPrompt, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import adapter_for, side_prefix
from cenote.processors.score.limits import LimitedText
from cenote.processors.score.sides import read_sides, refuse_fields
from cenote.processors.score.similarity import similarity


def score(preparer: Preparer, request: ScoreInput) -> Prepared[list[Score]]:
    """Prepares the distinct texts of a score request as embeddings.

    A result's `prompt_tokens` counts a text at the first pair that uses it, so that the sum over
    the results is what ran.
    """
    refuse_fields(request, "a bi-encoder", "instruction", "explain", "input_type", "chat_template")
    options = request.options
    params = preparer.params("embed", options)
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
        vectors = np.stack([output.array().reshape(-1) for output in outputs]).astype(np.float32)
        left, right = np.array(pairs, dtype=np.intp).T
        scores = similarity(kind, vectors[left], vectors[right])
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
