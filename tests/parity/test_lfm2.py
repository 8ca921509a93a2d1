"""LFM2 against transformers: last rows, and every row (LFM2-ColBERT reads those)."""

from __future__ import annotations

from typing import Any

import pytest
from heads import random_ids, reference_outputs
from reference import assert_matches_reference, serve
from tiny import MakeTiny
from torch.nn import functional as F

LENGTHS = [1, 2, 3, 7, 33, 7, 64]
FORMS: dict[str, dict[str, Any]] = {
    "by type": {"layer_types": ["conv", "full_attention", "conv"]},
    "by number": {"full_attn_idxs": [0], "block_auto_adjust_ff_dim": False},
    "wide, with biases": {
        "layer_types": ["conv", "conv", "full_attention"],
        "conv_bias": True,
        "conv_L_cache": 5,
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("architecture", ["Lfm2Model", "Lfm2ForCausalLM"])
def test_rows_are_those_of_transformers(
    architecture: str, form: str, kernels: str, make_tiny: MakeTiny
) -> None:
    shape = {"num_hidden_layers": 3, "num_key_value_heads": 2, "block_multiple_of": 16}
    folder = make_tiny(architecture, "bpe", **shape, **FORMS[form])
    served = serve(folder, kernels)
    assert served.model.kv_shape is None
    assert served.config.pooler.modes == ("last",)
    ids = random_ids(served, LENGTHS)
    rows = reference_outputs(served, ids, None)
    last = [F.normalize(item[-1], dim=-1) for item in rows]
    assert_matches_reference(served, "embed", ids, last)
    every = [F.normalize(item, dim=-1) for item in rows]
    assert_matches_reference(served, "token_embed", ids, every)
