"""Bodies of /score and /rerank."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import RerankInput, ScoreInput
from cenote.server.schemas.body import Answer, Item, ListAnswer, PromptBody, Usage
from cenote.server.schemas.prompts import OptionalTexts, Text, Texts

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

    def limits(self) -> dict[str, Any]:
        """The fields above as processors take them; null is the same as absent."""
        return {
            "max_tokens_per_query": self.max_tokens_per_query or 0,
            "max_tokens_per_doc": self.max_tokens_per_doc or 0,
            "instruction": self.instruction,
            "explain": bool(self.explain),
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


class RerankRequest(ScoringBody):
    """One query and its documents."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "query": "What is a cenote?",
                    "documents": ["A sinkhole with water.", {"text": "A bird."}],
                    "top_n": 1,
                }
            ]
        }
    )

    query: Text = Field(description="The query, as a string or an object with text.")
    documents: Texts = Field(description="Strings, or objects with text or content.")
    top_n: int | None = Field(None, description="How many of the best to answer; 0: all.")
    top_k: int | None = Field(None, description="Another name of top_n.")
    return_documents: bool | None = Field(True, description="Whether results repeat the texts.")

    def best(self) -> int | None:
        """`top_n` under either of its names; raises `InvalidRequest` where they differ."""
        if self.top_n is not None and self.top_k is not None and self.top_n != self.top_k:
            raise InvalidRequest(
                f"top_k is another name of top_n, but top_k is {self.top_k} and top_n is "
                f"{self.top_n}.",
                param="top_k",
            )
        return self.top_k if self.top_n is None else self.top_n

    def to_input(self, request_id: str, adapter: str | None) -> RerankInput:
        return RerankInput(
            query=self.query,
            documents=self.documents,
            top_n=self.best(),
            options=self.options(request_id, adapter),
            **self.limits(),
        )


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


class RankedText(Answer):
    """A document as it was sent."""

    text: str
    multi_modal: None = None


class RankedItem(Answer):
    """One document's place."""

    index: int = Field(description="Position of the document in the request.")
    relevance_score: float
    truncated: bool = Field(description="Extension: whether the document was cut.")
    document: RankedText | None = Field(None, description="Absent if return_documents is false.")
    matches: list[Match] | None = Field(None, description="With explain only.")


class RerankResponse(Answer):
    """Documents, best first: what clients of vLLM, Cohere and Jina read, in one body."""

    id: str
    object: Literal["rerank"]
    created: int
    model: str
    results: list[RankedItem]
    usage: Usage
    meta: dict[str, Any] = Field(description="Cohere's: api_version, billed_units, warnings.")
