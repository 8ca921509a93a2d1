"""Qwen2's reward models against their heads applied to transformers' hidden states."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from heads import random_ids, reference_outputs
from reference import assert_matches_reference, serve
from safetensors.torch import load_file, save_file
from test_decoders import LENGTHS, SHARED
from tiny import MakeTiny, edit_config
from torch import Tensor, nn

from cenote import LLM
from cenote.errors import InvalidRequest
from cenote.params import PoolingParams

STEP = 7


@pytest.fixture
def head() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)).requires_grad_(False)


def with_head(body: Path, folder: Path, name: str, head: nn.Sequential) -> Path:
    """The body's checkpoint with a reward head, under the release's names."""
    shutil.copytree(body, folder)
    tensors = {f"model.{k}": v for k, v in load_file(body / "model.safetensors").items()}
    tensors |= {f"score.{key}": value for key, value in head.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    edit_config(folder, architectures=[name])
    return folder


def test_a_reward_is_the_last_rows(
    head: nn.Sequential, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    head[2] = nn.Linear(32, 1).requires_grad_(False)
    body = make_tiny("Qwen2Model", "bpe", **SHARED)
    folder = with_head(body, tmp_path / "model", "Qwen2ForRewardModel", head)
    served = serve(folder, kernels, max_model_len=200)
    assert served.config.num_labels == 1
    ids = random_ids(served, LENGTHS)
    rows = reference_outputs(serve(body, kernels, max_model_len=200), ids, None)
    assert_matches_reference(served, "classify", ids, [head(item[-1]) for item in rows])


@pytest.mark.parametrize("columns", [[], [1]])
def test_a_process_reward_is_at_the_ends_of_steps(
    columns: list[int], head: nn.Sequential, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    body = make_tiny("Qwen2Model", "bpe", **SHARED)
    folder = with_head(body, tmp_path / "model", "Qwen2ForProcessRewardModel", head)
    edit_config(folder, step_tag_id=STEP, returned_token_ids=columns)
    served = serve(folder, kernels, max_model_len=200)
    assert not served.model.causal
    ids = [[5, 6, 8], [STEP], [9, 10, STEP, 11, 12, STEP, 13]]
    rows = reference_outputs(serve(body, kernels, max_model_len=200), ids, None)
    ends = [torch.tensor(row) == STEP for row in ids]
    logits: list[Tensor] = [head(row[at]) for row, at in zip(rows, ends, strict=True)]
    if columns:
        logits = [item[:, columns] for item in logits]
    found = served.run("token_classify", ids)
    assert [item.indices.tolist() for item in found if item.indices is not None] == [
        [],
        [0],
        [2, 5],
    ]
    raw = PoolingParams("token_classify", use_activation=False)
    for ours, theirs in zip(served.run("token_classify", ids, params=raw), logits, strict=True):
        assert torch.allclose(ours.data, theirs, atol=1e-5)
    for ours, theirs in zip(found, logits, strict=True):
        assert torch.allclose(ours.data, theirs.softmax(-1), atol=1e-5)


def test_a_request_may_name_its_own_steps_and_classes(
    head: nn.Sequential, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    body = make_tiny("Qwen2Model", "bpe", **SHARED)
    folder = with_head(body, tmp_path / "model", "Qwen2ForProcessRewardModel", head)
    edit_config(folder, step_tag_id=STEP)
    ids = [[9, 10, STEP, 11, 12, 13], [12, 8]]
    rows = reference_outputs(serve(body, "torch", max_model_len=200), ids, None)

    def asked(**settings: Any) -> PoolingParams:
        return PoolingParams("token_classify", use_activation=False, **settings)

    with LLM(str(folder), dtype="float32", threads=1, max_model_len=200) as llm:
        own = llm.encode(ids, pooling_params=asked(step_tag_id=12, returned_token_ids=(1,)))
        usual = llm.encode(ids, pooling_params=asked())
        for settings, problem in (
            ({"step_tag_id": 400}, "step_tag_id must be at most 399, not 400"),
            ({"returned_token_ids": (0, 2)}, "returned_token_ids must be at most 1, not 2"),
            ({"returned_token_ids": ()}, "returned_token_ids must name at least one class"),
        ):
            with pytest.raises(InvalidRequest, match=problem):
                llm.encode(ids, pooling_params=asked(**settings))
    for found, row, at in zip(own, rows, (4, 0), strict=True):
        np.testing.assert_allclose(found.probs, head(row[at])[None, 1:], atol=1e-5)
    np.testing.assert_allclose(usual[0].probs, head(rows[0][2])[None], atol=1e-5)
    assert len(usual[1].probs) == 0
    assert (own[0].labels, usual[0].labels) == (("LABEL_1",), ("LABEL_0", "LABEL_1"))


def test_other_models_have_no_steps(make_tiny: MakeTiny) -> None:
    params = PoolingParams("token_classify", step_tag_id=STEP)
    with (
        LLM(str(make_tiny("BertForTokenClassification", "wordpiece")), threads=1) as llm,
        pytest.raises(InvalidRequest, match="step_tag_id is for models that answer at the ends"),
    ):
        llm.encode(["a"], task="token_classify", pooling_params=params)
