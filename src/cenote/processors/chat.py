"""A conversation to the one text that a model reads: its own chat template renders it.

It knows no tokens: the text goes on like any other prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from cenote.config.model import ModelConfig
from cenote.errors import EmptyInput, InvalidRequest, ModelLoadError, UnsupportedInput
from cenote.processors.templates import ChatTemplate, given_template, load_chat_template


class Chat:
    """The chat template of one model, read when a conversation first comes. Thread-safe."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config

    @cached_property
    def _template(self) -> ChatTemplate:
        try:
            found = load_chat_template(self._config)
        except ModelLoadError as error:
            raise UnsupportedInput(error.message, param="messages") from None
        if found is None:
            raise UnsupportedInput(
                f"Model {self._config.name} has no chat template, so it can't take messages.",
                param="messages",
            )
        return found

    def text(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any] | None = None,
        *,
        template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
    ) -> str:
        """The conversation as text. `variables` are the request's `chat_template_kwargs`;
        `template`, if it has one, takes the place of the model's.

        `continue_final_message` leaves out what the template writes after the last message. Raises
        `UnsupportedInput` where the model has no template, and `InvalidRequest`.
        """
        if not messages:
            raise EmptyInput("messages is empty.", param="messages")
        if add_generation_prompt and continue_final_message:
            raise InvalidRequest(
                "add_generation_prompt and continue_final_message exclude each other.",
                param="continue_final_message",
            )
        added = {"add_generation_prompt": True} if add_generation_prompt else {}
        own = given_template(ChatTemplate, template, self._config) if template else self._template
        text = own.render(messages, {**added, **(variables or {})})
        return _up_to_last(text, messages[-1]) if continue_final_message else text


def _up_to_last(text: str, message: Mapping[str, Any]) -> str:
    content = message.get("content")
    last = content.strip() if isinstance(content, str) else ""
    place = text.rfind(last) if last else -1
    if place < 0:
        raise InvalidRequest(
            "continue_final_message needs a last message whose text the template writes out.",
            param="continue_final_message",
        )
    return text[: place + len(last)]
