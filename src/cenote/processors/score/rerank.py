"""One query against documents, best first: a score request whose answer is sorted.

It knows nothing of how a pair is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cenote.engine.messages import EngineOutput
from cenote.errors import InvalidRequest
from cenote.outputs import RankedDocument, Ranking, Score
from cenote.processors.inputs import RerankInput, ScoreInput
from cenote.processors.prepared import Prepared
from cenote.processors.validation import check_integer


def rerank(
    score: Callable[[ScoreInput], Prepared[list[Score]]], request: RerankInput
) -> Prepared[Ranking]:
    """Prepares a rerank through the model's scorer. Raises `InvalidRequest` for a bad `top_n`.

    What is wrong with the query is said of `query`, the field that a rerank has.
    """
    check_rerank(request.query, request.top_n)
    scored = ScoreInput(
        queries=[request.query],
        documents=request.documents,
        max_tokens_per_query=request.max_tokens_per_query,
        max_tokens_per_doc=request.max_tokens_per_doc,
        instruction=request.instruction,
        explain=request.explain,
        score_weights=request.score_weights,
        options=request.options,
    )
    try:
        prepared = score(scored)
    except InvalidRequest as error:
        if error.param == "queries":
            error.param = "query"
            error.message = error.message.replace("queries[0]", "query")
            error.args = (error.message,)
        raise

    def finish(outputs: list[EngineOutput]) -> Ranking:
        return ranking(prepared.finish(outputs), request.documents, request.top_n)

    return Prepared(prepared.requests, finish)


def check_rerank(query: object, top_n: int | None) -> None:
    """Refuses a query that is no string, and a negative `top_n`; None and 0 keep all documents."""
    if not isinstance(query, str):
        raise InvalidRequest(f"query must be a string, not {type(query).__name__}.", param="query")
    if top_n is not None:
        check_integer(top_n, "top_n", least=0)


def ranking(scores: Sequence[Score], documents: Sequence[str], top_n: int | None) -> Ranking:
    """Documents by score, greatest first, equal scores in the order given; at most `top_n`."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index].score)
    return Ranking(
        results=[
            RankedDocument(
                index=index,
                document=documents[index],
                relevance_score=scores[index].score,
                truncated=scores[index].truncated,
                matches=scores[index].matches,
            )
            for index in order[: top_n or None]
        ],
        prompt_tokens=sum(score.prompt_tokens for score in scores),
    )
