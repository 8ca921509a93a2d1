"""Which rows of a step are read: by which pooler, of whole prompts and parts, of tasks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from msgspec.structs import replace

from cenote.config.pooling import PoolingMode
from cenote.layers.packed import ReadRows
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams, Task
from cenote.poolers.marker import MarkerPooler
from cenote.poolers.methods import ClassifyPooler, EmbedPooler
from cenote.poolers.step import StepPooler
from cenote.poolers.token import TokenEmbedPooler
from cenote.runner.input_batch import make_batch, read_batch
from cenote.runner.row_readers import RowReaders
from cenote.step import ScheduledRequest

CPU = torch.device("cpu")
NO_MODEL = cast(PoolingModel, None)
EMBED, TOKENS = PoolingParams("embed"), PoolingParams("token_embed")


def embedder(*modes: PoolingMode) -> EmbedPooler:
    return EmbedPooler(modes, [], normalize=True)


def tokens() -> TokenEmbedPooler:
    return TokenEmbedPooler(NO_MODEL, [], normalize=True)


def scheduled(
    ids: Sequence[int],
    params: PoolingParams = EMBED,
    start: int = 0,
    count: int | None = None,
) -> ScheduledRequest:
    return ScheduledRequest("r", list(ids), params, start, count or len(ids) - start)


def rows(
    poolers: Mapping[Any, Any], *requests: ScheduledRequest, last_row_tasks: Sequence[Task] = ()
) -> ReadRows | None:
    return RowReaders(poolers, last_row_tasks).rows(requests, CPU)


def places(read: ReadRows | None) -> list[int]:
    assert read is not None
    assert read.rows.dtype == torch.int64
    assert read.cu_seqlens.dtype == torch.int32
    assert read.cu_seqlens.diff().tolist() == read.seq_lens
    return read.rows.tolist()


def test_the_first_row_of_each_prompt() -> None:
    read = rows({"embed": embedder("cls")}, scheduled([5, 6, 7]), scheduled([8]), scheduled([9, 9]))
    assert places(read) == [0, 3, 4]
    assert read is not None
    assert not read.trailing


def test_the_first_row_after_an_instruction() -> None:
    skipping = replace(EMBED, skip_tokens=2)
    read = rows({"embed": embedder("cls")}, scheduled([5, 6, 7], skipping), scheduled([8, 9]))
    assert places(read) == [2, 3]


def test_the_last_row_of_each_prompt() -> None:
    read = rows({"embed": embedder("last")}, scheduled([5, 6, 7]), scheduled([8]))
    assert places(read) == [2, 3]
    assert read is not None
    assert read.trailing


@pytest.mark.parametrize("modes", [("mean",), ("max",), ("cls", "mean"), ("cls", "last")])
def test_several_rows_are_all_rows(modes: tuple[PoolingMode, ...]) -> None:
    assert rows({"embed": embedder(*modes)}, scheduled([5, 6, 7])) is None


def test_spans_and_further_tasks_read_all_rows() -> None:
    poolers = {"embed": embedder("cls"), "token_embed": tokens()}
    spans = replace(EMBED, spans=((0, 2),))
    both = replace(EMBED, also=("token_embed",))
    for params in (spans, both):
        assert rows(poolers, scheduled([5, 6, 7], params)) is None


def test_tasks_side_by_side_read_their_own_rows() -> None:
    poolers = {"embed": embedder("cls"), "token_embed": tokens()}
    read = rows(poolers, scheduled([5, 6, 7]), scheduled([8, 9], TOKENS), scheduled([5, 6]))
    assert places(read) == [0, 3, 4, 5]
    assert read is not None
    assert read.seq_lens == [1, 2, 1]


def test_prompts_of_one_token_read_all_rows() -> None:
    assert rows({"embed": embedder("cls")}, scheduled([5]), scheduled([6])) is None


def test_steps_and_markers_where_they_are() -> None:
    steps = StepPooler(NO_MODEL, lambda logits: logits, tag=7)
    params = PoolingParams("token_classify")
    other = replace(params, step_tag_id=5)
    read = rows({"token_classify": steps}, scheduled([5, 7, 7], params), scheduled([5, 7], other))
    assert places(read) == [1, 2, 3]
    read = rows({"token_embed": MarkerPooler(NO_MODEL, [3, 4])}, scheduled([4, 9, 3], TOKENS))
    assert places(read) == [0, 2]


def test_documents_without_their_skip_list() -> None:
    poolers = {"token_embed": TokenEmbedPooler(NO_MODEL, [], normalize=True, skip_ids=[7, 2])}
    document, query = replace(TOKENS, input_type="document"), replace(TOKENS, input_type="query")
    read = rows(
        poolers,
        scheduled([5, 7, 2, 9], document),
        scheduled([5, 7], query),
        scheduled([5, 6], document),
        scheduled([7], document),
    )
    assert places(read) == [0, 3, 4, 5, 6, 7]
    assert read is not None
    assert read.seq_lens == [2, 2, 2, 0]
    assert rows(poolers, scheduled([5, 6], document), scheduled([7], query)) is None


def test_parts_of_prompts() -> None:
    poolers = {"embed": embedder("last"), "classify": embedder("mean")}
    parts = [
        scheduled([5, 6, 7, 8], start=0, count=3),  # goes on: nobody reads it
        scheduled([5, 6, 7, 8], start=2),  # ends
        scheduled([5, 6, 7, 8], PoolingParams("classify"), start=1, count=2),
    ]
    read = rows(poolers, *parts, last_row_tasks=("embed",))
    assert places(read) == [4, 5, 6]
    assert read is not None
    assert (read.seq_lens, read.trailing) == ([0, 1, 2], True)


def test_parts_whose_rows_are_remembered_read_all() -> None:
    part = scheduled([5, 6, 7, 8], start=1)
    assert rows({"embed": embedder("cls")}, part) is None


def test_the_read_batch_has_the_rows_own_ids_and_positions() -> None:
    requests = [scheduled([5, 6, 7]), scheduled([8, 9])]
    read = rows({"embed": embedder("last")}, *requests)
    part = read_batch(make_batch(requests, CPU, read=read))
    assert part.input_ids.tolist() == [7, 9]
    assert part.positions.tolist() == [2, 1]
    assert (part.seq_lens, part.cu_seqlens.tolist()) == ([1, 1], [0, 1, 2])
    assert read_batch(part) is part


@pytest.mark.parametrize(
    ("pooling", "expected"), [("cls", (0,)), ("last", (2,)), ("mean", None), ("late", None)]
)
def test_classifiers_read_the_row_of_their_model(pooling: str, expected: tuple[int] | None) -> None:
    model = cast(PoolingModel, SimpleNamespace(classify_pooling=pooling))
    pooler = ClassifyPooler(model, lambda logits: logits)
    assert pooler.reads([5, 6, 7], PoolingParams("classify")) == expected
