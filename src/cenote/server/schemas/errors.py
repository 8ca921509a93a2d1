"""The error bodies of all dialects, for the OpenAPI document. They are built in `dialects`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from cenote.server.dialects import Dialect
from cenote.server.schemas.body import Answer
from cenote.server.schemas.system import ErrorDetail, ErrorResponse


class NestedError(Answer):
    """An error as OpenAI and Infinity tell it."""

    error: ErrorDetail


class VllmDetail(Answer):
    """One error in vLLM's form."""

    message: str
    type: str = Field(examples=["BadRequestError"])
    param: str | None
    code: int = Field(description="The status again.", examples=[400])


class VllmError(Answer):
    """An error as vLLM tells it."""

    error: VllmDetail


class CohereError(Answer):
    """An error as Cohere tells it."""

    message: str = Field(examples=["input_type must be query or document, not 'x'."])


class DetailError(Answer):
    """An error as Voyage and Jina tell it."""

    detail: str = Field(examples=["input is missing."])


class TeiError(Answer):
    """An error as text-embeddings-inference tells it."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]


class OllamaError(Answer):
    """An error as Ollama tells it."""

    error: str


ERRORS: dict[Dialect, type[BaseModel]] = {
    "cenote": ErrorResponse,
    "vllm": VllmError,
    "cohere": CohereError,
    "jina": DetailError,
    "voyage": DetailError,
    "tei": TeiError,
    "infinity": NestedError,
    "ollama": OllamaError,
}
