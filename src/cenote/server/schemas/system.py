"""Bodies of the routes about the server itself, and of every error."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from cenote.params import Task
from cenote.server.schemas.body import Answer, ModelBody


class ErrorDetail(Answer):
    """One error in OpenAI's form."""

    message: str = Field(description="Names the field, the value and the limit.")
    type: str = Field(examples=["invalid_request_error"])
    param: str | None = Field(description="The field that is wrong.", examples=["dimensions"])
    code: str = Field(description="Stable; for programs.", examples=["invalid_request"])


class ErrorResponse(Answer):
    """Every error of every route. `detail` and `message` repeat the message for other clients."""

    error: ErrorDetail
    detail: str
    message: str


class ModelCard(Answer):
    """One name that requests may use, and what stands behind it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["cenote"]
    root: str = Field(description="The model's own name or folder.")
    parent: str | None = Field(description="The base model, for adapters.")
    max_model_len: int
    permission: list[Any]
    loaded: bool = Field(description="Extension: false until its first request, with --lazy.")
    tasks: list[Task] | None = Field(
        description="Extension: what the model does; null, like what follows, until it is loaded."
    )
    score_kind: str | None = Field(
        description="Extension: bi_encoder, cross_encoder, late_interaction, sparse, or null."
    )
    embedding_size: int | None = Field(description="Extension.")
    dimensions: list[int] | None = Field(
        description="Extension: the sizes that its vectors were trained to be cut to."
    )
    prompts: list[str] = Field(description="Extension: names for prompt_name and input_type.")
    default_prompt_name: str | None = Field(
        description="Extension: the prompt of requests that name none."
    )
    dtype: str | None = Field(description="Extension: number format that it runs in.")
    device: str | None = Field(description="Extension.")
    kernels: str | None = Field(description="Extension: the CPU kernels that run.")
    revision: str = Field(description="Extension.")


class ModelList(Answer):
    """Every name that requests may use."""

    object: Literal["list"]
    data: list[ModelCard]


class Version(Answer):
    version: str


class Load(Answer):
    server_load: int = Field(description="Requests under way.")


class ReloadRequest(ModelBody):
    """New weights of the same architecture."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"folder": "/models/mine-v2"}]})

    folder: str | None = Field(None, description="Folder of the weights; absent: the model's own.")


class AdminRequest(ModelBody):
    """Which model is meant; may be left out, body and all."""


class AdminResponse(Answer):
    """What the engine did."""

    model: str
    method: str
    result: Any = None
