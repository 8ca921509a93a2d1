"""The fields that routes share: prompts or a conversation, and vectors and how they go out."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import PromptOptions, SparseOptions
from cenote.processors.registry import Processors
from cenote.server.encoding import EmbedDType, Encoding, EncodingFormat, Endianness
from cenote.server.schemas.body import PromptBody
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
            template=self.chat_template,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )
        adds = bool(self.add_special_tokens)
        made = {"input": [text], "add_special_tokens": adds, "chat_template": None}
        return self.model_copy(update=made)

    def options(self, request_id: str, adapter: str | None, **more: Any) -> PromptOptions:
        return super().options(
            request_id,
            adapter,
            add_special_tokens=self.add_special_tokens is not False,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
            input_type=self.input_type,
            **more,
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
