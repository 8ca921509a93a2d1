"""Bodies of /infinity: Infinity's defaults on the fields that all bodies have, and its classify."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from cenote.errors import UnsupportedInput
from cenote.processors.inputs import ClassifyInput, PromptOptions
from cenote.processors.registry import Processors
from cenote.server.schemas.body import Answer, ExtrasBody, Usage
from cenote.server.schemas.embed import EmbeddingRequest
from cenote.server.schemas.inputs import input_config
from cenote.server.schemas.rerank import RerankRequest, rerank_config


class InfinityEmbeddingRequest(EmbeddingRequest):
    """Infinity's embeddings request. Long inputs are cut, and the answer tells which."""

    model_config = input_config({"model": "minilm", "input": ["A sinkhole."], "dimensions": 0})

    modality: Literal["text", "image", "audio"] | None = Field(
        "text", description="Only text is read."
    )
    truncation: bool | None = Field(True, description="Extension: false refuses long inputs.")
    dimensions: int | None = Field(0, description="Cut vectors to this size; 0: all of it.")

    def resolved(self, processors: Processors) -> InfinityEmbeddingRequest:
        if self.modality not in (None, "text"):
            raise UnsupportedInput(f"This model reads text, not {self.modality}.", param="modality")
        whole = self.model_copy(update={"dimensions": self.dimensions or None})
        return super(InfinityEmbeddingRequest, whole).resolved(processors)


class InfinityRerankRequest(RerankRequest):
    """Infinity's rerank request. Long documents are cut, and the answer tells which."""

    model_config = rerank_config(
        {"query": "What is a cenote?", "documents": ["A sinkhole.", "A bird."], "top_n": 1}
    )

    truncation: bool | None = Field(True, description="Extension: false refuses long documents.")
    return_documents: bool | None = Field(False, description="Whether results repeat the texts.")
    raw_scores: bool | None = Field(False, description="true gives scores before the activation.")


class InfinityRankedItem(Answer):
    """One document's place."""

    index: int
    relevance_score: float
    document: str | None = Field(None, description="With return_documents.")
    truncated: bool = Field(description="Extension: whether the document was cut.")


class InfinityRerankResponse(Answer):
    """Documents, best first."""

    id: str
    object: Literal["rerank"]
    created: int
    model: str
    results: list[InfinityRankedItem]
    usage: Usage


class InfinityClassifyRequest(ExtrasBody):
    """Texts to classify."""

    model_config = rerank_config({"input": ["I loved it."]})

    input: list[str] = Field(description="The texts.")
    raw_scores: bool = Field(False, description="true gives logits.")

    def to_input(self, request_id: str, adapter: str | None) -> ClassifyInput:
        options = PromptOptions(
            truncate_prompt_tokens=-1,
            use_activation=False if self.raw_scores else None,
            request_id=request_id,
            adapter=adapter,
            **self.extras(),
        )
        return ClassifyInput(prompts=self.input, options=options)


class LabelScore(Answer):
    """One class of a text."""

    label: str
    score: float


class InfinityClassifyResponse(Answer):
    """For each text its classes, best first."""

    id: str
    object: Literal["classify"]
    created: int
    model: str
    data: list[list[LabelScore]]
    usage: Usage


class InfinityModel(Answer):
    """One served model."""

    id: str
    object: Literal["model"]
    owned_by: Literal["infinity"]
    created: int
    backend: str
    capabilities: list[str] = Field(description="Of embed, rerank and classify.")
    stats: dict[str, Any]


class InfinityModels(Answer):
    """All served models."""

    object: Literal["list"]
    data: list[InfinityModel]


class InfinityHealth(Answer):
    """A server that can answer."""

    unix: float = Field(description="The time, in seconds.")
