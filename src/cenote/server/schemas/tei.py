"""Bodies of text-embeddings-inference's own routes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from cenote.errors import EmptyInput, InvalidRequest
from cenote.params import Task
from cenote.processors.inputs import (
    ClassifyInput,
    EmbedInput,
    PoolingInput,
    Prompt,
    PromptOptions,
    RerankInput,
)
from cenote.server.schemas.body import Answer, Body, ExtrasBody, ModelBody
from cenote.server.schemas.prompts import Prompts, shown

Direction = Literal["Left", "Right", "left", "right"]

# A text and, for a pair, its second text.
Sequence = tuple[str, str | None]


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class TeiBody(ExtrasBody):
    """What all bodies have: how long inputs are cut."""

    truncate: bool | None = Field(None, description="true cuts inputs that are too long.")
    truncation_direction: Direction | None = Field("Right", description="Which end is cut.")

    def base(self, request_id: str, adapter: str | None, **fields: Any) -> PromptOptions:
        """The fields above as processors take them, with more fields."""
        side: Literal["left", "right"] | None = None
        if self.truncation_direction is not None:
            side = "left" if self.truncation_direction.lower() == "left" else "right"
        return PromptOptions(
            truncate_prompt_tokens=-1 if self.truncate else None,
            truncation_side=side,
            request_id=request_id,
            adapter=adapter,
            **self.extras(),
            **fields,
        )


class TeiInputs(TeiBody):
    """Inputs of /embed_all and /embed_sparse."""

    model_config = _example(inputs=["A sinkhole.", "A bird."])

    inputs: Prompts = Field(description="A text, texts, token ids, or lists of token ids.")
    prompt_name: str | None = Field(None, description="One of the model's own prompts.")

    def prompts(self) -> list[Prompt]:
        """The inputs; raises `EmptyInput` where there is nothing in one of them."""
        if not self.inputs:
            raise EmptyInput("inputs is empty.", param="inputs")
        for index, item in enumerate(self.inputs):
            if not item:
                raise EmptyInput(f"inputs[{index}] is empty.", param="inputs")
        return list(self.inputs)

    def to_pooling(self, request_id: str, adapter: str | None, task: Task) -> PoolingInput:
        options = self.base(request_id, adapter, prompt_name=self.prompt_name)
        return PoolingInput(prompts=self.prompts(), task=task, options=options)


class TeiEmbedRequest(TeiInputs):
    """Inputs to embed."""

    model_config = _example(inputs=["A sinkhole.", "A bird."], truncate=True)

    normalize: bool = Field(True, description="false gives vectors of any length.")
    dimensions: int | None = Field(None, description="Cut vectors to this size.")

    def to_input(self, request_id: str, adapter: str | None) -> EmbedInput:
        options = self.base(
            request_id, adapter, prompt_name=self.prompt_name, use_activation=self.normalize
        )
        return EmbedInput(prompts=self.prompts(), dimensions=self.dimensions, options=options)


class SimilarityInputs(Body):
    """One text and those it is compared with."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(TeiBody):
    """How the texts are encoded."""

    prompt_name: str | None = Field(None, description="One of the model's own prompts.")


class TeiSimilarityRequest(ExtrasBody):
    """One text and those it is compared with."""

    model_config = _example(
        inputs={"source_sentence": "A sinkhole.", "sentences": ["A hole.", "A bird."]}
    )

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None

    def to_input(self, request_id: str, adapter: str | None) -> EmbedInput:
        texts = self.inputs
        if not texts.sentences:
            raise EmptyInput("inputs.sentences is empty.", param="inputs")
        given = self.parameters or SimilarityParameters.model_validate({})
        options = given.base(request_id, adapter, prompt_name=given.prompt_name)
        return EmbedInput(
            prompts=[texts.source_sentence, *texts.sentences],
            options=replace(options, **self.extras()),
        )


class TeiRerankRequest(TeiBody):
    """A query and the texts to rank."""

    model_config = _example(query="What is a cenote?", texts=["A sinkhole.", "A bird."])

    query: str
    texts: list[str]
    raw_scores: bool = Field(False, description="true gives scores before the activation.")
    return_text: bool = Field(False, description="Whether results repeat the texts.")

    def to_input(self, request_id: str, adapter: str | None) -> RerankInput:
        if not self.texts:
            raise EmptyInput("texts is empty.", param="texts")
        activation = False if self.raw_scores else None
        options = self.base(request_id, adapter, use_activation=activation)
        return RerankInput(query=self.query, documents=self.texts, options=options)


class Batch(list[Sequence]):
    """Texts and pairs that came as a list of lists: its answer is one, too."""


def _check_sequences(value: Any) -> list[Sequence]:
    if isinstance(value, str) or (isinstance(value, list) and _is_sequence(value)):
        return [_sequence(value)]
    if isinstance(value, list) and all(isinstance(item, list) for item in value):
        return Batch(_sequence(item) for item in value)
    raise InvalidRequest(
        "inputs must be a string, a pair of strings, or a list of lists of one or two strings, "
        f"not {shown(value)}.",
        param="inputs",
    )


def _is_sequence(value: list[Any]) -> bool:
    return 1 <= len(value) <= 2 and all(isinstance(part, str) for part in value)


def _sequence(value: Any) -> Sequence:
    if isinstance(value, str):
        return value, None
    if not _is_sequence(value):
        raise InvalidRequest(
            f"Each of inputs must be one or two strings, not {shown(value)}.", param="inputs"
        )
    return value[0], (value[1] if len(value) == 2 else None)


_STRINGS = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}
Sequences = Annotated[
    list[Sequence],
    PlainValidator(_check_sequences),
    WithJsonSchema({"anyOf": [{"type": "string"}, _STRINGS, {"type": "array", "items": _STRINGS}]}),
]


class TeiPredictRequest(TeiBody):
    """Texts, or pairs of texts, to classify."""

    model_config = _example(inputs=[["I loved it."], ["A question?", "An answer."]])

    inputs: Sequences = Field(description="A text, a pair, or a list of either, each in a list.")
    raw_scores: bool = Field(False, description="true gives logits.")

    @property
    def is_batch(self) -> bool:
        """Whether the inputs came as a list of lists."""
        return isinstance(self.inputs, Batch)

    def to_input(self, request_id: str, adapter: str | None) -> ClassifyInput:
        if not self.inputs:
            raise EmptyInput("inputs is empty.", param="inputs")
        activation = False if self.raw_scores else None
        return ClassifyInput(
            prompts=[first for first, _ in self.inputs],
            pairs=[second for _, second in self.inputs],
            options=self.base(request_id, adapter, use_activation=activation),
        )


class TeiTokenizeRequest(ModelBody):
    """Texts to cut into the tokens that the model would get."""

    model_config = _example(inputs="Hello, cenote!")

    inputs: str | list[str] = Field(description="A text, or several.")
    add_special_tokens: bool = Field(True, description="Whether special tokens are added.")
    prompt_name: str | None = Field(None, description="One of the model's own prompts.")

    def texts(self) -> list[str]:
        """The texts, of which there is at least one; raises `EmptyInput`."""
        found = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        if not found:
            raise EmptyInput("inputs is empty.", param="inputs")
        return found


class TeiDecodeRequest(ModelBody):
    """Token ids to put together."""

    model_config = _example(ids=[101, 7592, 102])

    ids: list[int] | list[list[int]] = Field(description="One text's token ids, or several texts'.")
    skip_special_tokens: bool = Field(True, description="Whether special tokens are left out.")

    def rows(self) -> list[list[int]]:
        """One list of ids for each text; raises `EmptyInput` where there is none."""
        if not self.ids:
            raise EmptyInput("ids is empty.", param="ids")
        rows = [row for row in self.ids if isinstance(row, list)]
        return rows or [[token for token in self.ids if isinstance(token, int)]]


class TeiSparseValue(Answer):
    """One entry of a sparse vector."""

    index: int
    value: float


class TeiRank(Answer):
    """One text's place."""

    index: int
    score: float
    text: str | None = Field(None, description="With return_text.")


class TeiPrediction(Answer):
    """One class."""

    score: float
    label: str


class TeiToken(Answer):
    """One token of a text."""

    id: int
    text: str
    special: bool
    start: int | None = Field(description="In characters; null for special tokens.")
    stop: int | None


class TeiInfo(Answer):
    """What is served, and its limits."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
