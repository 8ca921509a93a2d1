"""Bodies of /rerank: one superset of what vLLM's, Cohere's, Jina's, Voyage's and Infinity's callers
send, since all of them send it to the same path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import ConfigDict, Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import PromptOptions, RerankInput
from cenote.server.schemas.body import Answer, Usage
from cenote.server.schemas.prompts import Documents, Text, text_of
from cenote.server.schemas.score import Match, ScoringBody


def rerank_config(*examples: dict[str, Any]) -> ConfigDict:
    """The config of a rerank body, with its examples for the document."""
    return ConfigDict(json_schema_extra={"examples": [*examples]})


class RerankRequest(ScoringBody):
    """One query and its documents."""

    model_config = rerank_config(
        {
            "query": "What is a cenote?",
            "documents": ["A sinkhole with water.", {"text": "A bird."}],
            "top_n": 1,
        }
    )

    query: Text = Field(description="The query, as a string or an object with text.")
    documents: Documents = Field(
        description="Strings, or objects with text or content, or with the rank_fields."
    )
    top_n: int | None = Field(None, description="How many of the best to answer; 0: all.")
    top_k: int | None = Field(
        None, description="Voyage's name of top_n; the answer then has data beside results."
    )
    return_documents: bool | None = Field(True, description="Whether results repeat the texts.")
    rank_fields: list[str] | None = Field(
        None,
        description="Cohere: the fields of object documents that are ranked, in this order.",
        examples=[["title", "text"]],
    )
    max_doc_length: int | None = Field(None, description="Jina's name of max_tokens_per_doc.")
    max_chunks_per_doc: int | None = Field(
        None, description="Cohere v1: refused, since documents aren't cut into chunks."
    )
    truncation: bool | None = Field(
        None, description="Voyage: true cuts documents that are too long; the answer tells which."
    )
    raw_scores: bool | None = Field(
        None, description="Infinity: true gives scores before the activation."
    )

    def best(self) -> int | None:
        """`top_n` under either of its names; raises `InvalidRequest` where they differ."""
        found: int | None = self.agreed("top_n", "top_k")
        return found

    def texts(self) -> list[str]:
        """The documents as they are ranked. Raises `InvalidRequest` for an object without text."""
        return [self._text(item, f"documents[{i}]") for i, item in enumerate(self.documents)]

    def _text(self, item: str | dict[str, Any], where: str) -> str:
        if isinstance(item, str) or not self.rank_fields:
            return text_of(item, "documents", where)
        for name in self.rank_fields:
            if item.get(name) is None:
                raise InvalidRequest(
                    f"{where} has no field {name!r}, which rank_fields names.", param="rank_fields"
                )
        if len(self.rank_fields) == 1:
            return str(item[self.rank_fields[0]])
        return "\n".join(f"{name}: {item[name]}" for name in self.rank_fields)

    def activation(self) -> bool | None:
        found = super().activation()
        return False if found is None and self.raw_scores else found

    def options(self, request_id: str, adapter: str | None, **more: Any) -> PromptOptions:
        options = super().options(request_id, adapter, **more)
        cuts = self.truncation and options.truncate_prompt_tokens is None
        return replace(options, truncate_prompt_tokens=-1) if cuts else options

    def limits(self) -> dict[str, Any]:
        if self.max_chunks_per_doc is not None:
            raise InvalidRequest(
                f"max_chunks_per_doc {self.max_chunks_per_doc} is not supported: documents are not "
                "cut into chunks. Use max_tokens_per_doc, or truncation.",
                param="max_chunks_per_doc",
            )
        limit = self.max_tokens_per_doc or self.max_doc_length
        return {**super().limits(), "max_tokens_per_doc": limit or 0}

    def to_input(
        self, request_id: str, adapter: str | None, max_model_len: int | None = None
    ) -> RerankInput:
        """The request; `max_model_len` is for dialects whose own limit may be above the model's."""
        return RerankInput(
            query=self.query,
            documents=self.texts(),
            top_n=self.best(),
            options=self.options(request_id, adapter),
            **self.limits(),
        )


class RankedText(Answer):
    """A document as it was sent."""

    text: str
    multi_modal: None = None


class RankedItem(Answer):
    """One document's place."""

    index: int = Field(description="Position of the document in the request.")
    relevance_score: float
    truncated: bool = Field(description="Extension: whether the document was cut.")
    document: RankedText | dict[str, Any] | None = Field(
        None, description="Absent if return_documents is false. With rank_fields: as it was sent."
    )
    matches: list[Match] | None = Field(None, description="With explain only.")


class RerankResponse(Answer):
    """Documents, best first: what clients of vLLM, Cohere and Jina read, in one body."""

    id: str
    object: Literal["rerank"]
    created: int
    model: str
    results: list[RankedItem]
    data: list[RankedItem] | None = Field(
        None, description="The results again, for requests with Voyage's top_k."
    )
    usage: Usage
    meta: dict[str, Any] = Field(description="Cohere's: api_version, billed_units, warnings.")
