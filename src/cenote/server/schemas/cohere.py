"""Bodies of Cohere's /v1/embed, /v2/embed, and of /cohere's rerank."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from cenote.errors import EmptyInput, InvalidRequest, UnsupportedInput
from cenote.processors.inputs import EmbedInput, PromptOptions, RerankInput
from cenote.server.encoding import VectorType
from cenote.server.schemas.body import Answer, ExtrasBody
from cenote.server.schemas.prompts import Text, text_of
from cenote.server.schemas.rerank import RerankRequest, rerank_config

# What Cohere calls the prompt that is for no text.
IMAGE = "image"


class CohereEmbedRequest(ExtrasBody):
    """Texts to embed, in Cohere's form."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "minilm",
                    "texts": ["A sinkhole with water."],
                    "input_type": "search_document",
                    "embedding_types": ["float", "ubinary"],
                }
            ]
        }
    )

    texts: list[str] | None = Field(None, description="The texts; or inputs.")
    inputs: list[dict[str, Any]] | None = Field(
        None, description="Objects with content, a list of parts of type text."
    )
    images: list[str] | None = Field(None, description="Refused by models that read only text.")
    input_type: str | None = Field(
        None, description="search_query, search_document, classification or clustering."
    )
    embedding_types: list[VectorType] | None = Field(
        None, description="The forms of the vectors; absent: float."
    )
    output_dimension: int | None = Field(None, description="Cut vectors to this size.")
    truncate: Literal["NONE", "START", "END"] | None = Field(
        "END", description="Which end of a long text is cut; NONE refuses it instead."
    )
    max_tokens: int | None = Field(None, description="Cut texts to so many tokens.", examples=[512])
    priority: int = Field(0, description="Smaller is served earlier.")

    def prompts(self) -> list[str]:
        """The one kind of input that is given. Raises `InvalidRequest` for none or several."""
        given = [name for name in ("texts", "images", "inputs") if getattr(self, name) is not None]
        if len(given) != 1:
            words = " and ".join(given) or "none"
            raise InvalidRequest(
                f"Give exactly one of texts, images and inputs, not {words}.",
                param=given[0] if given else "texts",
            )
        if self.images is not None:
            raise UnsupportedInput("This model reads text, not images.", param="images")
        inputs = enumerate(self.inputs or ())
        found = self.texts or [text_of(item, "inputs", f"inputs[{i}]") for i, item in inputs]
        if not found:
            raise EmptyInput(f"{given[0]} is empty.", param=given[0])
        return found

    def kinds(self) -> list[VectorType]:
        """The forms to answer with, each once."""
        return list(dict.fromkeys(self.embedding_types or ["float"]))

    def to_input(self, request_id: str, adapter: str | None, max_model_len: int) -> EmbedInput:
        return EmbedInput(
            prompts=self.prompts(),
            dimensions=self.output_dimension,
            options=PromptOptions(
                truncate_prompt_tokens=self._keep(max_model_len),
                truncation_side="left" if self.truncate == "START" else "right",
                input_type=None if self.input_type == IMAGE else self.input_type,
                priority=self.priority,
                request_id=request_id,
                adapter=adapter,
                **self.extras(),
            ),
        )

    def _keep(self, max_model_len: int) -> int | None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequest(
                f"max_tokens must be at least 1, not {self.max_tokens}.", param="max_tokens"
            )
        if self.truncate == "NONE":
            return None
        return min(self.max_tokens or max_model_len, max_model_len)


class CohereRerankRequest(RerankRequest):
    """Cohere's rerank request. Long documents are cut, and meta.warnings tells which."""

    model_config = rerank_config(
        {
            "query": "What is a cenote?",
            "documents": [{"title": "Cenote", "text": "A sinkhole."}, {"title": "", "text": "A"}],
            "rank_fields": ["title", "text"],
            "top_n": 1,
        }
    )

    query: Text = Field(description="The query.")
    max_tokens_per_doc: int | None = Field(
        4096, description="Documents are cut to this, and to what the model takes."
    )
    truncation: bool | None = Field(True, description="false refuses long documents instead.")
    return_documents: bool | None = Field(False, description="Whether results repeat documents.")

    def to_input(
        self, request_id: str, adapter: str | None, max_model_len: int | None = None
    ) -> RerankInput:
        limit = self.max_tokens_per_doc
        if limit is not None and max_model_len is not None and limit >= max_model_len:
            # The model's own limit is the lower one, and truncation cuts to that.
            unlimited = self.model_copy(update={"max_tokens_per_doc": 0})
            return unlimited.to_input(request_id, adapter)
        return super().to_input(request_id, adapter)


class BilledUnits(Answer):
    """What Cohere would bill."""

    input_tokens: int | None = None
    search_units: int | None = None


class Meta(Answer):
    """What a request cost, and what was cut."""

    api_version: dict[str, str]
    billed_units: BilledUnits
    tokens: dict[str, int] | None = None
    warnings: list[str] | None = Field(None, description="Each text that was cut.")


class CohereEmbedResponse(Answer):
    """Vectors by form; v1 without embedding_types: a plain list."""

    id: str
    response_type: Literal["embeddings_floats", "embeddings_by_type"]
    embeddings: dict[str, list[Any]] | list[list[float]]
    texts: list[str]
    meta: Meta


class CohereRankedItem(Answer):
    """One document's place."""

    index: int
    relevance_score: float
    document: dict[str, Any] | None = Field(None, description="With return_documents.")


class CohereRerankResponse(Answer):
    """Documents, best first."""

    id: str
    results: list[CohereRankedItem]
    meta: Meta
