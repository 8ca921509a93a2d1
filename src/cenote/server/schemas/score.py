"""Bodies of /score, and the fields that /rerank has as well."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import ScoreInput
from cenote.server.schemas.body import Item, ListAnswer, PromptBody
from cenote.server.schemas.prompts import OptionalTexts

PAIRS = (
    ("queries", "documents"),
    ("queries", "items"),
    ("data_1", "data_2"),
    ("text_1", "text_2"),
)


class ScoringBody(PromptBody):
    """What /score and /rerank share."""

    max_tokens_per_query: int | None = Field(0, description="Cut a query's text to this; 0: off.")
    max_tokens_per_doc: int | None = Field(0, description="Cut a document's text to this; 0: off.")
    instruction: str | None = Field(None, description="For models whose template has a place.")
    explain: bool | None = Field(
        False,
        description="Late interaction: tell for each query token the document token that matched.",
    )
    score_weights: dict[str, float] | None = Field(
        None,
        description=(
            "Embedding models with several outputs (BGE-M3): the weighted mean of their scores, by "
            "task (embed, sparse_embed, token_embed); absent: embed alone."
        ),
        examples=[{"embed": 0.4, "sparse_embed": 0.2, "token_embed": 0.4}],
    )

    def limits(self) -> dict[str, Any]:
        """The fields above as processors take them; null is the same as absent."""
        return {
            "max_tokens_per_query": self.max_tokens_per_query or 0,
            "max_tokens_per_doc": self.max_tokens_per_doc or 0,
            "instruction": self.instruction,
            "explain": bool(self.explain),
            "score_weights": self.score_weights,
        }


class ScoreRequest(ScoringBody):
    """Two sides under exactly one pair of names; 1:1, 1:N or N:N texts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"queries": "What is a cenote?", "documents": ["A sinkhole.", "A bird."]}]
        }
    )

    queries: OptionalTexts = Field(None, description="The left side.")
    documents: OptionalTexts = Field(None, description="The right side, with queries.")
    items: OptionalTexts = Field(None, description="Another name of documents.")
    data_1: OptionalTexts = Field(None, description="Another name of queries.")
    data_2: OptionalTexts = Field(None, description="The right side, with data_1.")
    text_1: OptionalTexts = Field(None, description="Another name of queries.")
    text_2: OptionalTexts = Field(None, description="The right side, with text_1.")

    def sides(self) -> tuple[list[str], list[str]]:
        """Queries and documents; raises `InvalidRequest` unless exactly one pair is there."""
        given = {name for pair in PAIRS for name in pair if getattr(self, name) is not None}
        for left, right in PAIRS:
            if given == {left, right}:
                return getattr(self, left), getattr(self, right)
        pairs = ", ".join(f"{left} and {right}" for left, right in PAIRS)
        raise InvalidRequest(
            f"A score needs exactly one pair of fields ({pairs}); this request has "
            f"{', '.join(sorted(given)) or 'none of them'}.",
            param=min(given, default="queries"),
        )

    def to_input(self, request_id: str, adapter: str | None) -> ScoreInput:
        queries, documents = self.sides()
        options = self.options(request_id, adapter)
        return ScoreInput(queries=queries, documents=documents, options=options, **self.limits())


class Match(BaseModel):
    """Why a document ranked: a query token and the document token it matched best."""

    query_token: str
    query_offset: tuple[int, int] = Field(description="Start and end in the query's text.")
    document_token: str
    document_offset: tuple[int, int] = Field(description="Start and end in the document's text.")
    similarity: float


class ScoreItem(Item):
    """One pair's score."""

    object: Literal["score"]
    score: float
    matches: list[Match] | None = Field(None, description="With explain only.")


class ScoreResponse(ListAnswer):
    """Scores in the order of the input."""

    data: list[ScoreItem]
