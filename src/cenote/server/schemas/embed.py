"""Bodies of /v1/embeddings, and the fields that all routes with vectors share."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import ConfigDict, Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import EmbedInput, PromptOptions, SparseOptions
from cenote.server.encoding import EmbedDType, Encoding, EncodingFormat, Endianness
from cenote.server.schemas.body import Answer, Item, ListAnswer, PromptBody
from cenote.server.schemas.prompts import Prompts

# Each takes some 150 bytes of a header line, of which usual clients read 64 KiB at most.
MAX_DESCRIBED_INPUTS = 256


class InputBody(PromptBody):
    """A body whose `input` is one prompt or several, as text or token ids."""

    input: Prompts = Field(
        description="A text, a list of texts, token ids, or a list of token-id lists.",
        examples=["Where do cenotes come from?"],
    )
    add_special_tokens: bool = Field(
        True, description="Whether the tokenizer adds its special tokens to texts."
    )
    prompt: str | None = Field(
        None, description="Text to put before each input, as sentence-transformers does."
    )
    prompt_name: str | None = Field(
        None, description="Name of one of the model's own prompts, put before each input."
    )
    input_type: str | None = Field(
        None, description="query or document, for models that encode the two differently."
    )

    def options(self, request_id: str, adapter: str | None) -> PromptOptions:
        return replace(
            super().options(request_id, adapter),
            add_special_tokens=self.add_special_tokens,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
            input_type=self.input_type,
        )


class VectorBody(InputBody):
    """A body whose answer has vectors."""

    encoding_format: EncodingFormat | None = Field(
        "float",
        description="float: JSON numbers. base64: of the raw bytes. bytes: the raw bytes as the "
        "body, described by the header `metadata`. bytes_only: the same without that header.",
    )
    embed_dtype: EmbedDType | None = Field(
        "float32", description="Number format of base64 and bytes."
    )
    endianness: Endianness | None = Field(
        "native", description="Byte order of base64 and bytes; native is little on all our hosts."
    )
    dimensions: int | None = Field(
        None, description="Cut vectors to this size (matryoshka), then normalise again."
    )

    def encoding(self) -> Encoding:
        """How the vectors go out; null is the same as absent.

        Raises `InvalidRequest` for more inputs than a header can describe.
        """
        if self.encoding_format == "bytes" and len(self.input) > MAX_DESCRIBED_INPUTS:
            raise InvalidRequest(
                f"encoding_format bytes describes each input in a header, which has room for "
                f"{MAX_DESCRIBED_INPUTS}, not {len(self.input)}; use bytes_only or base64.",
                param="encoding_format",
            )
        return Encoding(
            self.encoding_format or "float",
            self.embed_dtype or "float32",
            self.endianness or "native",
        )


class SparseBody(VectorBody):
    """A body whose answer may have sparse vectors."""

    sparse_top_k: int | None = Field(
        None, description="Keep so many of a sparse vector's entries, the heaviest."
    )
    sparse_threshold: float | None = Field(
        None, description="Drop a sparse vector's entries that weigh less."
    )
    return_tokens: bool = Field(
        False, description="Add the token strings of a sparse vector's entries."
    )

    def sparse(self) -> SparseOptions:
        """The fields above as processors take them."""
        return SparseOptions(
            top_k=self.sparse_top_k,
            threshold=self.sparse_threshold,
            return_tokens=self.return_tokens,
        )


class EmbeddingRequest(SparseBody):
    """OpenAI's embeddings request, with extensions."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "minilm", "input": ["First text.", "Second text."]}]
        }
    )

    return_sparse: bool = Field(
        False,
        description="Add each input's sparse vector, from the same forward pass. A model that has "
        "no other vectors then answers with an empty embedding.",
    )

    def to_input(self, request_id: str, adapter: str | None) -> EmbedInput:
        sparse = self.sparse()
        if not self.return_sparse and sparse != SparseOptions():
            raise InvalidRequest(
                "sparse_top_k, sparse_threshold and return_tokens need return_sparse.",
                param="return_sparse",
            )
        return EmbedInput(
            prompts=self.input,
            dimensions=self.dimensions,
            sparse=sparse if self.return_sparse else None,
            options=self.options(request_id, adapter),
        )


class SparseVector(Answer):
    """Vocabulary ids and their weights, heaviest first, no zeros."""

    indices: list[int] = Field(examples=[[3007, 2605]])
    values: list[float] = Field(examples=[[2.79, 2.36]])
    tokens: list[str] | None = Field(None, description="With return_tokens.")


class EmbeddingItem(Item):
    """One input's vector."""

    object: Literal["embedding"]
    embedding: list[float] | str = Field(
        description="Numbers, or base64 text.", examples=[[0.01, -0.2, 0.3]]
    )
    sparse_embedding: SparseVector | None = Field(
        None, description="Extension: with return_sparse."
    )


class EmbeddingResponse(ListAnswer):
    """OpenAI's embeddings answer; strict clients ignore the extensions."""

    data: list[EmbeddingItem]
