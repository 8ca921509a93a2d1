"""What all request bodies have in common: strict types, removed names, and the shared fields.

Strict means that true is no number and null no text. Unknown fields are ignored, as OpenAI does;
values are checked by the processors, so that online and offline refuse the same things.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import PromptOptions
from cenote.processors.registry import Processors
from cenote.server.schemas.prompts import shown

# What only processors may ask of the engine.
INTERNAL = frozenset({"late_interaction", "late_interaction_params"})


class Body(BaseModel):
    """A JSON object that a client sends. `removed` maps old names to what to use instead."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    removed: ClassVar[Mapping[str, str]] = {
        "softmax": "use_activation",
        "activation": "use_activation",
    }

    @classmethod
    def refuse_names(cls, fields: Mapping[str, Any]) -> None:
        """Refuses names that vLLM once had (ignoring them would change the numbers silently), and
        those of what only the server itself may tell its engine."""
        for name in INTERNAL & fields.keys():
            raise InvalidRequest(f"{name} is set by the server only.", param=name)
        for name in cls.removed.keys() & fields.keys():
            raise InvalidRequest(
                f"{name} was removed; use {cls.removed[name]} instead.", param=name
            )

    def agreed(self, *names: str) -> Any:
        """The value of a field under any of its names, the usual one first; None: not given.

        Raises `InvalidRequest` where two of the names are given and differ.
        """
        first, found = "", None
        for name in names:
            value = getattr(self, name)
            if value is None or value == found:
                continue
            if found is not None:
                raise InvalidRequest(
                    f"{name} is another name of {first}, but {name} is {shown(value)} and "
                    f"{first} is {shown(found)}.",
                    param=name,
                )
            first, found = name, value
        return found


class ModelBody(Body):
    """A body that names the model."""

    model: str | None = Field(
        None,
        description="A served name, alias or adapter; absent: the first served model.",
        examples=["minilm"],
    )

    def resolved(self, processors: Processors) -> Self:
        """The body with what only the model's processors can make of it (a conversation's text)."""
        return self


class ExtrasBody(ModelBody):
    """The extras of a request that runs prompts, which every dialect takes under these names.

    A dialect that dropped a `cache_salt` would let its caller share caches with all others.
    """

    cache_salt: str | None = Field(
        None,
        description="A secret of the caller: caches are shared only between equal salts.",
        examples=["tenant-7"],
    )
    mm_processor_kwargs: dict[str, Any] | None = Field(
        None, description="For the multimodal processor; goes to every prompt."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="For the prompt template, and for nothing else."
    )

    def extras(self) -> dict[str, Any]:
        """Those that are given, as fields of `PromptOptions`."""
        names = ("cache_salt", "mm_processor_kwargs", "chat_template_kwargs")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class PromptBody(ExtrasBody):
    """The fields that every request which runs prompts may have."""

    truncate_prompt_tokens: int | None = Field(
        None,
        description="Absent: a prompt over the limit is refused. -1: cut to the model's limit. "
        "n: keep n tokens, special tokens included.",
        examples=[-1],
    )
    truncation_side: Literal["left", "right"] | None = Field(
        None, description="Which end is cut; absent: the tokenizer's own."
    )
    use_activation: bool | None = Field(
        None,
        description="Normalise an embedding, softmax or sigmoid a class; absent: as the model "
        "says. false gives the raw numbers.",
    )
    normalize: bool | None = Field(None, description="Another name of use_activation.")
    priority: int = Field(0, description="Smaller is served earlier.")
    request_id: str | None = Field(
        None, description="Used in the answer's id; absent: the X-Request-Id header, or a new one."
    )
    chat_template: str | None = Field(
        None,
        description="A Jinja template in place of the model's for messages, or of the score "
        "template for pairs; with --trust-request-chat-template only.",
    )
    user: str | None = Field(None, description="Accepted for OpenAI's sake; not used.")
    adapter: str | None = Field(
        None,
        description="Extension: the LoRA adapter to use, which `model` may name as well; absent: "
        "the base model, or what the model itself has for the prompt in use.",
    )

    def activation(self) -> bool | None:
        """`use_activation` under either of its names; raises `InvalidRequest` where they differ."""
        found: bool | None = self.agreed("use_activation", "normalize")
        return found

    def options(self, request_id: str, adapter: str | None, **more: Any) -> PromptOptions:
        """The fields above as processors take them, and `more` of theirs; `adapter` is the one that
        `model` named.

        Raises `InvalidRequest` where the body names another one.
        """
        if self.adapter is not None and adapter not in (None, self.adapter):
            raise InvalidRequest(
                f"model names the adapter {shown(adapter)}, and adapter {shown(self.adapter)}.",
                param="adapter",
            )
        return PromptOptions(
            chat_template=self.chat_template,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            truncation_side=self.truncation_side,
            use_activation=self.activation(),
            priority=self.priority,
            request_id=request_id,
            adapter=self.adapter or adapter,
            **self.extras(),
            **more,
        )


class Answer(BaseModel):
    """A JSON object that the server sends; only documentation, answers are built without it."""

    model_config = ConfigDict(extra="forbid")


class Usage(Answer):
    """Tokens that ran. A prompt that several results share (a rerank's query) counts once."""

    prompt_tokens: int = Field(examples=[7])
    total_tokens: int = Field(examples=[7])
    completion_tokens: int = Field(0, description="Always 0.")
    prompt_tokens_details: dict[str, int] | None = Field(
        None, description="cached_tokens, where the prefix cache had some."
    )


class Item(Answer):
    """What every result of one input tells."""

    index: int = Field(description="Position of the input in the request.", examples=[0])
    prompt_tokens: int = Field(
        description="Extension: tokens of this input that ran.", examples=[7]
    )
    truncated: bool = Field(description="Extension: whether this input was cut.", examples=[False])


class ListAnswer(Answer):
    """The frame of answers that carry a list."""

    id: str = Field(examples=["embd-3f2a9c0d"])
    object: Literal["list"]
    created: int = Field(description="Unix time in seconds.", examples=[1_790_000_000])
    model: str = Field(examples=["minilm"])
    usage: Usage
