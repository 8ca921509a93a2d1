"""Scores from a sparse model: each distinct text of a side is encoded once, then compared.

The similarity is the model's own, the dot product unless it names another. Queries get the query
side (an inference-free one, where the model has it) and the query prompt, as sentence-transformers'
`encode_query` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from cenote.engine.messages import EngineOutput
from cenote.outputs import Score
from cenote.params import InputType, PoolingParams
from cenote.processors import results
from cenote.processors.inputs import PromptOptions, ScoreInput
from cenote.processors.prepare import Preparer, TokenPrompt, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import side_prefix
from cenote.processors.score.bi_encoder import count_once
from cenote.processors.score.limits import LimitedText
from cenote.processors.score.sides import read_sides, refuse_fields
from cenote.processors.score.similarity import sparse_similarity
from cenote.processors.sparse import sparse_prompts


@dataclass(frozen=True, slots=True)
class _Side:
    """The distinct texts of a side as prompts, their parameters, and the row of each text."""

    prompts: list[TokenPrompt]
    params: list[PoolingParams]
    rows: list[int]


def score(preparer: Preparer, request: ScoreInput) -> Prepared[list[Score]]:
    """Prepares the distinct texts of a score request as sparse vectors."""
    refuse_fields(
        request, "a sparse model", "instruction", "explain", "input_type", "chat_template"
    )
    options = request.options
    base = preparer.params("sparse_embed", options)
    sides = read_sides(preparer, request)
    queries = _side(preparer, sides.queries, options, base, "query")
    documents = _side(preparer, sides.documents, options, base, "document")
    prompts = queries.prompts + documents.prompts
    params = queries.params + documents.params
    pairs = [
        (queries.rows[query], len(queries.prompts) + documents.rows[document])
        for query, document in sides.pairs
    ]
    cut = [sides.is_cut(pair) for pair in sides.pairs]
    kind = preparer.config.pooler.similarity

    def finish(outputs: list[EngineOutput]) -> list[Score]:
        vectors = [
            (results.positions(output), output.array().reshape(-1).astype(np.float32))
            for output in outputs
        ]
        tokens = count_once(prompts, pairs)
        return [
            Score(
                score=sparse_similarity(kind, vectors[a], vectors[b]),
                prompt_tokens=tokens[index],
                truncated=cut[index] or prompts[a].truncated or prompts[b].truncated,
            )
            for index, (a, b) in enumerate(pairs)
        ]

    return Prepared(preparer.requests(prompts, params, options), finish)


def _side(
    preparer: Preparer,
    texts: Sequence[LimitedText],
    options: PromptOptions,
    base: PoolingParams,
    side: InputType,
) -> _Side:
    rows = {text: row for row, text in enumerate(dict.fromkeys(item.text for item in texts))}
    prompts = sparse_prompts(
        preparer,
        list(rows),
        options,
        side,
        prefix=side_prefix(preparer.config, options, side),
        param="queries" if side == "query" else "documents",
    )
    params = msgspec.structs.replace(base, input_type=side)
    return _Side(prompts, per_prompt(params, prompts), [rows[item.text] for item in texts])
