"""Bodies of /classify."""

from __future__ import annotations

from pydantic import Field

from cenote.processors.inputs import ClassifyInput
from cenote.server.schemas.body import Item, ListAnswer
from cenote.server.schemas.inputs import InputBody, input_config


class ClassifyRequest(InputBody):
    """Texts to classify."""

    model_config = input_config({"input": ["I loved it."]})

    candidate_labels: list[str] | None = Field(
        None, description="Extension: classes of the request's own, scored by an NLI model."
    )
    hypothesis_template: str = Field(
        "This example is {}.", description="Extension: how a candidate label becomes a sentence."
    )
    multi_label: bool = Field(
        False, description="Extension: whether several candidate labels may be true."
    )

    def to_input(self, request_id: str, adapter: str | None) -> ClassifyInput:
        return ClassifyInput(
            prompts=self.input,
            candidate_labels=self.candidate_labels,
            hypothesis_template=self.hypothesis_template,
            multi_label=self.multi_label,
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
