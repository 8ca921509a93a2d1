"""Bodies of Ollama's /api routes."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from cenote.processors.inputs import EmbedInput, PromptOptions
from cenote.server.schemas.body import Answer, ExtrasBody


class OllamaBody(ExtrasBody):
    """What both requests have."""

    options: dict[str, Any] | None = Field(None, description="Accepted; not used.")
    keep_alive: str | int | float | None = Field(
        None, description="Accepted; models stay loaded here."
    )

    def to_options(self, request_id: str, adapter: str | None, *, cut: bool) -> PromptOptions:
        """Ollama's vectors are always normalised."""
        return PromptOptions(
            truncate_prompt_tokens=-1 if cut else None,
            use_activation=True,
            request_id=request_id,
            adapter=adapter,
            **self.extras(),
        )


class OllamaEmbedRequest(OllamaBody):
    """Texts to embed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "minilm", "input": ["A sinkhole."]}]}
    )

    input: str | list[str] = Field(description="A text, or several; [] gets none.")
    truncate: bool | None = Field(
        True, description="false refuses texts that are too long instead of cutting them."
    )
    dimensions: int | None = Field(None, description="Cut vectors to this size; 0: all of it.")

    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input

    def to_input(self, request_id: str, adapter: str | None) -> EmbedInput:
        cut = self.truncate is not False
        return EmbedInput(
            prompts=self.texts(),
            dimensions=self.dimensions or None,
            options=self.to_options(request_id, adapter, cut=cut),
        )


class OllamaEmbeddingsRequest(OllamaBody):
    """One text to embed, in the older form."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "minilm", "prompt": "A sinkhole."}]}
    )

    prompt: str = Field(description="The text.")

    def to_input(self, request_id: str, adapter: str | None) -> EmbedInput:
        options = self.to_options(request_id, adapter, cut=True)
        return EmbedInput(prompts=[self.prompt], options=options)


class OllamaEmbedResponse(Answer):
    """Vectors in the order of the input; times are nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int
    truncated_inputs: list[int] | None = Field(
        None, description="Extension: indices of the inputs that were cut."
    )


class OllamaEmbeddingsResponse(Answer):
    """The text's vector."""

    embedding: list[float]


class OllamaModel(Answer):
    """One name that requests may use."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: dict[str, Any]


class OllamaTags(Answer):
    """Every name that requests may use."""

    models: list[OllamaModel]
