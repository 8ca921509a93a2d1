"""Bodies of /tokenize and /detokenize."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from cenote.server.schemas.body import Answer, ModelBody


class TokenizeRequest(ModelBody):
    """A text to cut into the tokens that the model would get."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "Hello, cenote!"}]})

    prompt: str = Field(description="The text.")
    add_special_tokens: bool = Field(True, description="Whether special tokens are added.")
    return_token_strs: bool | None = Field(False, description="Also answer the tokens as text.")


class TokenizeResponse(Answer):
    """The tokens of a text."""

    count: int
    max_model_len: int = Field(description="The model's limit in tokens.")
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(ModelBody):
    """Token ids to put together."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tokens": [101, 7592, 102]}]})

    tokens: list[int] = Field(description="Token ids.")


class DetokenizeResponse(Answer):
    """The text of token ids."""

    prompt: str
