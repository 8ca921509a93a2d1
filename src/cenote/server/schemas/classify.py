"""Bodies of /classify."""

from __future__ import annotations

from pydantic import Field

from cenote.processors.inputs import ClassifyInput
from cenote.server.schemas.body import Item, ListAnswer
from cenote.server.schemas.embed import InputBody, input_config


class ClassifyRequest(InputBody):
    """Texts to classify."""

    model_config = input_config({"input": ["I loved it."]})

    def to_input(self, request_id: str, adapter: str | None) -> ClassifyInput:
        return ClassifyInput(
            prompts=self.input,
            options=self.options(request_id, adapter),
        )


class ClassifyItem(Item):
    """One input's class scores."""

    label: str | None = Field(description="Name of the best class, where the model has names.")
    probs: list[float] = Field(description="One for each class; logits if asked for.")
    num_classes: int


class ClassifyResponse(ListAnswer):
    """Class scores in the order of the input."""

    labels: list[str] = Field(description="Extension: names of the classes, in `probs`' order.")
    data: list[ClassifyItem]
