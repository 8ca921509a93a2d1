"""Bodies of /pooling: any task by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from cenote.errors import InvalidRequest, UnsupportedTask
from cenote.params import TASKS, PoolingParams, Task
from cenote.processors.inputs import PoolingInput
from cenote.server.schemas.body import Item, ListAnswer
from cenote.server.schemas.inputs import SparseBody, input_config

# Names that vLLM once had, and where what they did is found now.
REMOVED_TASKS = {
    "encode": "token_embed or token_classify",
    "score": "classify, or POST /score",
    "reward": "classify or token_classify",
}


class PoolingRequest(SparseBody):
    """Prompts and a task; absent, the task is the model's first."""

    model_config = input_config({"input": "One vector a token.", "task": "token_embed"})

    task: str | list[str] | None = Field(
        None,
        description=f"One of {', '.join(TASKS)}; which of them a model does is in /v1/models. "
        "A list runs several in one forward pass.",
        examples=["embed"],
    )

    aggregation_strategy: str | None = Field(
        None,
        description="token_classify: entities in place of every token's scores. none, simple, "
        "first, average or max, as in transformers.",
        examples=["simple"],
    )

    step_tag_id: int | None = Field(
        None,
        description="Process reward models: the token that ends a step; absent: the model's own.",
    )
    returned_token_ids: list[int] | None = Field(
        None,
        description="Process reward models: the classes to return, by number; absent: the model's.",
    )

    def to_input(
        self, request_id: str, adapter: str | None, supported: Collection[Task]
    ) -> PoolingInput:
        return PoolingInput(
            prompts=self.input,
            task=self._checked_task(supported),
            dimensions=self.dimensions,
            sparse=self.sparse(),
            aggregation_strategy=self.aggregation_strategy,
            options=self.options(request_id, adapter, pooling_params=self._steps()),
        )

    def _steps(self) -> PoolingParams | None:
        """What the request says of steps, None if nothing."""
        classes = self.returned_token_ids
        if self.step_tag_id is None and classes is None:
            return None
        return PoolingParams(
            step_tag_id=self.step_tag_id,
            returned_token_ids=None if classes is None else tuple(classes),
        )

    def _checked_task(self, supported: Collection[Task]) -> Task | list[Task] | None:
        if isinstance(self.task, list):
            return [_checked(name, supported) for name in self.task]
        return None if self.task is None else _checked(self.task, supported)


def _checked(name: str, supported: Collection[Task]) -> Task:
    if name in REMOVED_TASKS:
        raise InvalidRequest(
            f"task {name!r} was removed; use {REMOVED_TASKS[name]} instead.", param="task"
        )
    for task in TASKS:
        if name == task:
            return task
    raise UnsupportedTask(name, supported)


class PoolingItem(Item):
    """One input's result; which members it has follows from the task.

    embed: a vector. classify: class scores. token_embed and token_classify: a row for each token.
    sparse_embed: `{"indices": vocabulary ids, "values": weights}`, heaviest first; with
    return_tokens also `tokens`. With an aggregation_strategy: a list of entities, `{"label",
    "score", "word", "start", "end"}`. Several tasks: these members of each, under its name in
    `data`.
    """

    object: Literal["pooling"]
    data: list[float] | list[list[float]] | list[dict[str, Any]] | dict[str, Any] | str
    shape: list[int] | None = Field(None, description="Extension: of base64 data.")
    positions: list[int] | None = Field(None, description="token_embed: row's place in the prompt.")
    token_ids: list[int] | None = Field(None, description="Token tasks: the prompt's ids.")
    offsets: list[tuple[int, int]] | None = Field(
        None, description="token_classify: start and end of each token in the text."
    )
    label: str | None = Field(None, description="classify: name of the best class.")


class PoolingResponse(ListAnswer):
    """Results in the order of the input."""

    task: str | list[str] | None = Field(
        None, description="Extension: the task or tasks that were done."
    )
    labels: list[str] | None = Field(None, description="Extension: names of the classes.")
    data: list[PoolingItem]
