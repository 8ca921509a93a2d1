"""What the three scorers share: a score request's pairs and its texts after their limits.

It knows nothing of how a pair is scored.
"""

from __future__ import annotations

from dataclasses import dataclass

from cenote.errors import InvalidRequest
from cenote.processors.inputs import ScoreInput
from cenote.processors.prepare import Preparer
from cenote.processors.score.limits import LimitedText, check_limit, limit_texts
from cenote.processors.score.shapes import pair_up
from cenote.processors.validation import check_type


@dataclass(frozen=True, slots=True)
class Sides:
    """Pairs of (query index, document index) in the order of the answer, and both sides' texts."""

    pairs: list[tuple[int, int]]
    queries: list[LimitedText]
    documents: list[LimitedText]

    def is_cut(self, pair: tuple[int, int]) -> bool:
        """Whether a limit cut either text of a pair."""
        query, document = pair
        return self.queries[query].truncated or self.documents[document].truncated


def read_sides(preparer: Preparer, request: ScoreInput) -> Sides:
    """Checks the request's shape and limits and cuts each side's texts as it asks."""
    most = preparer.max_model_len
    check_type(request.instruction, "instruction", str, "a string")
    check_limit(request.max_tokens_per_query, "max_tokens_per_query", most)
    check_limit(request.max_tokens_per_doc, "max_tokens_per_doc", most)
    pairs = pair_up(request.queries, request.documents)
    tokenizer = preparer.tokenizer
    return Sides(
        pairs=pairs,
        queries=limit_texts(tokenizer, request.queries, request.max_tokens_per_query),
        documents=limit_texts(tokenizer, request.documents, request.max_tokens_per_doc),
    )


def refuse_fields(request: ScoreInput, scorer: str, *names: str) -> None:
    """Refuses fields that mean nothing to a scorer, rather than dropping them silently."""
    for name in names:
        holder = request if hasattr(request, name) else request.options
        if getattr(holder, name):
            raise InvalidRequest(f"{name} has no meaning for {scorer}.", param=name)
