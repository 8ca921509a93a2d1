"""Bodies of /v1/embeddings, and the fields that all routes with vectors share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import EmbedInput, PromptOptions, SparseOptions
from cenote.processors.registry import Processors
from cenote.server.encoding import EmbedDType, Encoding, EncodingFormat, Endianness
from cenote.server.schemas.body import Answer, Item, ListAnswer, PromptBody
from cenote.server.schemas.prompts import Prompts

# One message of a conversation: what it may have is the template's affair.
Message = dict[str, Any]

# Each takes some 150 bytes of a header line, of which usual clients read 64 KiB at most.
MAX_DESCRIBED_INPUTS = 256


def input_config(*examples: dict[str, Any]) -> ConfigDict:
    """The config of a body that has input or messages, with its examples for the document."""
    either: list[Any] = [{"required": ["input"]}, {"required": ["messages"]}]
    return ConfigDict(json_schema_extra={"anyOf": either, "examples": [*examples]})


class InputBody(PromptBody):
    """A body whose `input` is one prompt or several, as text or token ids."""

    model_config = input_config()

    input: Prompts = Field(
        [],
        description="A text, a list of texts or of objects with text, token ids, or a list of "
        "token-id lists. Required unless there are messages.",
        examples=["Where do cenotes come from?"],
    )
    messages: list[Message] | None = Field(
        None, description="A conversation in place of input; the model's chat template renders it."
    )
    add_generation_prompt: bool = Field(
        False, description="messages: end with what opens an assistant's turn."
    )
    continue_final_message: bool = Field(
        False, description="messages: leave the last message open. Not with add_generation_prompt."
    )
    add_special_tokens: bool | None = Field(
        None,
        description="Whether the tokenizer adds its special tokens to texts; absent: to input yes, "
        "to messages no, since templates write them out.",
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

    def resolved(self, processors: Processors) -> Self:
        """The body with its messages as the one text of `input`. Raises `InvalidRequest`."""
        given = self.model_fields_set
        if self.messages is None:
            if "input" not in given:
                raise InvalidRequest("input is missing.", param="input")
            return self
        if "input" in given:
            raise InvalidRequest("Give input or messages, not both.", param="messages")
        text = processors.chat_text(
            self.messages,
            self.chat_template_kwargs,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )
        adds = bool(self.add_special_tokens)
        return self.model_copy(update={"input": [text], "add_special_tokens": adds})

    def options(self, request_id: str, adapter: str | None) -> PromptOptions:
        return replace(
            super().options(request_id, adapter),
            add_special_tokens=self.add_special_tokens is not False,
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

    model_config = input_config({"model": "minilm", "input": ["First text.", "Second text."]})

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
