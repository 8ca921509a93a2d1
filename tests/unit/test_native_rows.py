"""Copies of whole rows by index, on both implementations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from cenote.kernels import backend
from cenote.kernels.rows import put_rows, take_rows

# The last width's rows are copied in more than one task.
WIDTHS = [1, 33, 4096]
DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def configured(kernels: str) -> Iterator[None]:
    backend.configure(kernels, torch.device("cpu"), torch.float32, threads=2)  # type: ignore[arg-type]
    torch.manual_seed(0)
    yield
    backend.configure("torch", torch.device("cpu"), torch.float32)


def wide(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Rows that lie apart, as a slice of a wider matrix."""
    return torch.randn(rows, width + 7).to(dtype)[:, 3 : 3 + width]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_put_where_indices_say_and_nowhere_else(width: int, dtype: torch.dtype) -> None:
    table, rows = wide(90, width, dtype), wide(40, width, dtype)
    places = torch.randperm(90)[:40]
    expected = [*table.clone()]
    for row, place in zip(rows, places.tolist(), strict=True):
        expected[place] = row
    put_rows(table, places, rows)
    assert torch.equal(table, torch.stack(expected))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_taken_in_the_order_of_indices(width: int, dtype: torch.dtype) -> None:
    table = wide(90, width, dtype)
    places = torch.randint(90, (200,))
    expected = torch.stack([table[place] for place in places.tolist()])
    assert torch.equal(take_rows(table, places), expected)


def test_indices_may_lie_apart() -> None:
    table, places = torch.randn(9, 4), torch.tensor([[8, 0], [1, 0], [3, 0]])[:, 0]
    assert torch.equal(take_rows(table, places), table[[8, 1, 3]])
    put_rows(table, places, torch.ones(3, 4))
    assert table[[8, 1, 3]].eq(1).all()
    assert not table[[0, 2, 4]].eq(1).any()


def test_no_rows_are_no_rows() -> None:
    table, none = torch.randn(5, 4), torch.zeros(0, dtype=torch.int64)
    assert take_rows(table, none).shape == (0, 4)
    before = table.clone()
    put_rows(table, none, torch.randn(0, 4))
    assert torch.equal(table, before)


@pytest.mark.parametrize("place", [-1, 5, 2**40])
def test_a_row_outside_the_table_is_refused(place: int) -> None:
    table, places = torch.zeros(5, 4), torch.tensor([0, place])
    before = table.clone()
    with pytest.raises(IndexError):
        take_rows(table, places)
    with pytest.raises(IndexError):
        put_rows(table, places, torch.ones(2, 4))
    if backend.native() is not None:
        assert torch.equal(table, before)
