"""Bodies of /voyage: Voyage's defaults on the fields that all rerank and embedding bodies have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cenote.server.schemas.body import Answer, Usage
from cenote.server.schemas.embed import EmbeddingRequest
from cenote.server.schemas.inputs import input_config
from cenote.server.schemas.rerank import RerankRequest, rerank_config


class VoyageEmbeddingRequest(EmbeddingRequest):
    """Voyage's embeddings request. Long inputs are cut unless truncation is false."""

    model_config = input_config(
        {"model": "minilm", "input": ["A sinkhole."], "input_type": "document"}
    )

    truncation: bool | None = Field(
        True, description="Cut inputs that are too long; the answer tells which."
    )


class VoyageRerankRequest(RerankRequest):
    """Voyage's rerank request. Long pairs are cut unless truncation is false."""

    model_config = rerank_config(
        {"query": "What is a cenote?", "documents": ["A sinkhole.", "A bird."], "top_k": 1}
    )

    truncation: bool | None = Field(
        True, description="Cut documents that are too long; the answer tells which."
    )
    return_documents: bool | None = Field(False, description="Whether results repeat the texts.")


class VoyageRankedItem(Answer):
    """One document's place."""

    index: int
    relevance_score: float
    document: str | None = Field(None, description="With return_documents.")
    truncated: bool = Field(description="Extension: whether the document was cut.")


class VoyageRerankResponse(Answer):
    """Documents, best first."""

    object: Literal["list"]
    data: list[VoyageRankedItem]
    model: str
    usage: Usage
