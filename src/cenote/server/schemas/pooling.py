"""Bodies of /pooling: any task by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import ConfigDict, Field

from cenote.errors import InvalidRequest, UnsupportedTask
from cenote.params import TASKS, Task
from cenote.processors.inputs import PoolingInput
from cenote.server.schemas.body import Item, ListAnswer
from cenote.server.schemas.embed import VectorBody

# Names that vLLM once had, and where what they did is found now.
REMOVED_TASKS = {
    "encode": "token_embed or token_classify",
    "score": "classify, or POST /score",
    "reward": "classify or token_classify",
}


class PoolingRequest(VectorBody):
    """Prompts and a task; absent, the task is the model's first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": "One vector a token.", "task": "token_embed"}]}
    )

    task: str | None = Field(
        None,
        description=f"One of {', '.join(TASKS)}; which of them a model does is in /v1/models.",
        examples=["embed"],
    )

    def to_input(
        self, request_id: str, adapter: str | None, supported: Collection[Task]
    ) -> PoolingInput:
        return PoolingInput(
            prompts=self.input,
            task=self._checked_task(supported),
            dimensions=self.dimensions,
            options=self.options(request_id, adapter),
        )

    def _checked_task(self, supported: Collection[Task]) -> Task | None:
        if self.task in REMOVED_TASKS:
            raise InvalidRequest(
                f"task {self.task!r} was removed; use {REMOVED_TASKS[self.task]} instead.",
                param="task",
            )
        if self.task is not None and self.task not in TASKS:
            raise UnsupportedTask(self.task, supported)
        return self.task


class PoolingItem(Item):
    """One input's result; which members it has follows from the task.

    embed: a vector. classify: class scores. token_embed and token_classify: a row for each token.
    sparse_embed: `{"indices": vocabulary ids, "values": weights}`, heaviest first.
    """

    object: Literal["pooling"]
    data: list[float] | list[list[float]] | dict[str, Any] | str
    shape: list[int] | None = Field(None, description="Extension: of base64 data.")
    positions: list[int] | None = Field(None, description="token_embed: row's place in the prompt.")
    token_ids: list[int] | None = Field(None, description="Token tasks: the prompt's ids.")
    offsets: list[tuple[int, int]] | None = Field(
        None, description="token_classify: start and end of each token in the text."
    )
    label: str | None = Field(None, description="classify: name of the best class.")


class PoolingResponse(ListAnswer):
    """Results in the order of the input."""

    task: str | None = Field(None, description="Extension: the task that was done.")
    labels: list[str] | None = Field(None, description="Extension: names of the classes.")
    data: list[PoolingItem]
