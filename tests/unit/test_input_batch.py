"""Scheduled requests become one packed batch: ids, positions, token types, masks, and its parts."""

from __future__ import annotations

import pytest
import torch

from cenote.errors import InvalidRequest
from cenote.params import PoolingParams
from cenote.runner.input_batch import make_batch, take_sequences
from cenote.step import ScheduledRequest

CPU = torch.device("cpu")
PLAIN = PoolingParams("embed")


def scheduled(
    ids: list[int], params: PoolingParams = PLAIN, start: int = 0, tokens: int | None = None
) -> ScheduledRequest:
    return ScheduledRequest("r", ids, params, start, len(ids) - start if tokens is None else tokens)


def typed(first: object) -> PoolingParams:
    return PLAIN.with_extra(compressed_token_type_ids=first)


def test_sequences_are_concatenated_without_padding() -> None:
    batch = make_batch([scheduled([5, 6, 7]), scheduled([8]), scheduled([9, 10])], CPU)
    assert batch.input_ids.tolist() == [5, 6, 7, 8, 9, 10]
    assert batch.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert batch.seq_lens == [3, 1, 2]
    assert batch.max_seqlen == 3
    for tensor in (batch.input_ids, batch.positions, batch.cu_seqlens):
        assert tensor.dtype == torch.int32
        assert tensor.is_contiguous()


def test_a_later_chunk_starts_at_its_position() -> None:
    batch = make_batch([scheduled([5, 6, 7, 8], start=1, tokens=2), scheduled([9])], CPU)
    assert batch.input_ids.tolist() == [6, 7, 9]
    assert batch.positions.tolist() == [1, 2, 0]


def test_without_token_types_there_is_no_tensor() -> None:
    batch = make_batch([scheduled([5, 6])], CPU)
    assert batch.token_type_ids is None
    assert batch.key_mask is None


@pytest.mark.parametrize(("first", "types"), [(0, [1, 1, 1]), (1, [0, 1, 1]), (3, [0, 0, 0])])
def test_token_types_are_one_from_the_given_position_on(first: int, types: list[int]) -> None:
    batch = make_batch([scheduled([5, 6, 7], typed(first))], CPU)
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.tolist() == types
    assert batch.token_type_ids.dtype == torch.int32


def test_prompts_without_types_get_zeros_beside_one_that_has_them() -> None:
    batch = make_batch([scheduled([5, 6]), scheduled([7, 8, 9], typed(1)), scheduled([4])], CPU)
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.tolist() == [0, 0, 0, 1, 1, 0]


def test_token_types_of_a_later_chunk_follow_prompt_positions() -> None:
    batch = make_batch([scheduled([5, 6, 7, 8], typed(2), start=1)], CPU)
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.tolist() == [0, 1, 1]


@pytest.mark.parametrize("first", [-1, 4, "2", 1.5])
def test_token_types_that_are_no_position_are_refused(first: object) -> None:
    with pytest.raises(InvalidRequest, match="compressed_token_type_ids"):
        make_batch([scheduled([5, 6, 7], typed(first))], CPU)


def test_tokens_after_the_attended_ones_are_masked_as_keys() -> None:
    expanded = PoolingParams("token_embed", attended_tokens=2)
    batch = make_batch([scheduled([5, 6, 7, 8], expanded), scheduled([9, 10])], CPU)
    assert batch.key_mask is not None
    assert batch.key_mask.dtype == torch.uint8
    assert batch.key_mask.tolist() == [1, 1, 0, 0, 1, 1]


def test_a_part_of_a_batch_is_the_batch_of_its_sequences() -> None:
    requests = [
        scheduled([5, 6, 7], typed(1)),
        scheduled([8], PoolingParams("embed", attended_tokens=1)),
        scheduled([9, 10]),
    ]
    batch = make_batch(requests, CPU)
    hidden = torch.arange(12.0).reshape(6, 2)
    rows, part = take_sequences(hidden, batch, 1, 3)
    assert rows.tolist() == hidden[3:].tolist()
    assert part.input_ids.tolist() == [8, 9, 10]
    assert part.positions.tolist() == [0, 0, 1]
    assert part.cu_seqlens.tolist() == [0, 1, 3]
    assert part.seq_lens == [1, 2]
    assert part.token_type_ids is not None
    assert part.key_mask is not None
    assert len(part.token_type_ids) == len(part.key_mask) == 3
    same, whole = take_sequences(hidden, batch, 0, 3)
    assert same is hidden
    assert whole is batch
