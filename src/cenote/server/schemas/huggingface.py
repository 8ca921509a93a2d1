"""The body of POST /, as Hugging Face's inference client sends it to a model's own address."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from cenote.processors.inputs import PoolingInput, PromptOptions
from cenote.server.schemas.body import ExtrasBody
from cenote.server.schemas.tei import TeiBody


class InputsRequest(TeiBody):
    """Inputs for whatever the model does: vectors, classes, entities, or similarities."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"inputs": "A sinkhole."}]}
    )

    inputs: Any = Field(
        description="A text or several; source_sentence and sentences for similarities."
    )
    parameters: dict[str, Any] | None = Field(
        None, description="The task's further fields; they may also stand beside inputs."
    )

    def fields(self) -> dict[str, Any]:
        """The body with its parameters beside inputs, as TEI's own routes have them."""
        plain = {name: value for name, value in self.model_dump().items() if value is not None}
        return {**plain, **(plain.pop("parameters", None) or {}), "inputs": self.inputs}


class TokenClassificationBody(ExtrasBody):
    """What a request for entities has beside its inputs."""

    inputs: str | list[str]
    aggregation_strategy: str | None = "simple"

    def to_input(self, request_id: str, adapter: str | None) -> PoolingInput:
        """Long texts are refused: an entity that was cut off would be missing silently."""
        texts = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        return PoolingInput(
            prompts=texts,
            task="token_classify",
            aggregation_strategy=self.aggregation_strategy or "none",
            options=PromptOptions(request_id=request_id, adapter=adapter, **self.extras()),
        )
