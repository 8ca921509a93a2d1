"""Every architecture of the registry against its reference: every task, both dtypes, both kernels.

Each sequence runs in a batch, in the reverse one and alone; lengths are one token, odd and even
ones, and the longest. An architecture that joins the registry fails here until families.py has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import torch
from families import family_of, save_family
from heads import Rows, assert_tasks_match, random_ids, random_types
from reference import FLOAT32, Served, Tolerance, serve
from tiny import MakeTiny
from torch import Tensor

from cenote.models.registry import ARCHITECTURES

# Wide weights show mistakes, but blow up bfloat16's rounding: at 0.3, transformers' own bfloat16 is
# up to 0.05 from float32 in a probability. The usual width is 0.02.
MODERATE = {"initializer_range": 0.05}


@dataclass(frozen=True)
class Case:
    """A model's folder, and what the reference makes of some token ids."""

    folder: Path
    dtype: torch.dtype
    tolerance: Tolerance
    longest: int
    ids: Rows
    types: Rows | None
    outputs: list[Tensor]

    def serve(self, kernels: str) -> Served:
        return serve(self.folder, kernels, self.dtype, max_model_len=self.longest)


@pytest.fixture(
    scope="module",
    params=[*product(ARCHITECTURES, ("float32", "bfloat16"))],
    ids="-".join,
)
def case(
    request: pytest.FixtureRequest, make_tiny: MakeTiny, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    architecture, dtype = request.param
    family = family_of(architecture)
    narrow = dtype == "bfloat16"
    width = MODERATE if narrow else {}
    target = tmp_path_factory.mktemp(architecture)
    folder, source = save_family(architecture, make_tiny, target, **width)
    served = serve(folder, "torch", max_model_len=family.longest)
    ids = random_ids(served, (*family.lengths, family.longest), family.first_id)
    types = random_types(ids) if family.types else None
    outputs = family.reference(served, ids, types, source)
    tolerance = family.narrow if narrow else FLOAT32
    return Case(folder, getattr(torch, dtype), tolerance, family.longest, ids, types, outputs)


def test_every_task_is_the_references(case: Case, kernels: str) -> None:
    served = case.serve(kernels)
    lengths = [len(row) for row in case.ids]
    assert min(lengths) == 1
    assert max(lengths) == served.config.max_model_len
    assert any(length > 1 and length % 2 for length in lengths)
    assert_tasks_match(served, case.ids, case.types, case.outputs, case.tolerance)
