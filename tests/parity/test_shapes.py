"""Configurations in which a family's models differ, against transformers: optional biases, other
positions, groups, poolings, activations. families.py has each family's usual one."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from families import BASE, FAMILIES, V3
from heads import HEADS, assert_head_matches
from tiny import MakeTiny

ALBERT = {
    "embedding_size": 16,
    "num_hidden_layers": 3,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
}
OWN_WEIGHTS = {**V3, "share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1}
EUROBERT: dict[str, Any] = {
    "attention_bias": True,
    "mlp_bias": True,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
}
KINDS = ("sliding_attention", "full_attention")
MODERNBERT: dict[str, Any] = {
    "layer_types": list(KINDS),
    "local_attention": 6,
    "rope_parameters": {kind: {"rope_theta": 50.0 + len(kind)} for kind in KINDS},
    "classifier_pooling": "mean",
    "classifier_activation": "relu",
    "decoder_bias": False,
    **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True),
}

SHAPES: list[tuple[str, dict[str, Any]]] = [
    (
        "AlbertModel",
        {
            "embedding_size": 16,
            "num_hidden_layers": 3,
            "num_hidden_groups": 2,
            "inner_group_num": 2,
        },
    ),
    ("DebertaModel", {**BASE, "pos_att_type": "p2c", "max_relative_positions": 20}),
    ("DebertaModel", {**BASE, "pos_att_type": "c2p", "position_biased_input": True}),
    ("DebertaModel", {"relative_attention": False, "type_vocab_size": 2}),
    # deberta-v2-xlarge's convolution.
    (
        "DebertaV2Model",
        {**V3, "conv_kernel_size": 3, "conv_act": "gelu", "max_relative_positions": 40},
    ),
    ("DebertaV2Model", OWN_WEIGHTS),
    ("DebertaV2Model", {**OWN_WEIGHTS, "pos_att_type": "c2p", "max_relative_positions": 20}),
    (
        "DebertaV2Model",
        {**V3, "pos_att_type": "p2c", "position_biased_input": True, "type_vocab_size": 2},
    ),
    ("DebertaV2Model", {"relative_attention": False}),
    # The original masked-language-model head.
    ("DebertaV2ForMaskedLM", {**V3, "legacy": False}),
    ("ElectraModel", {"embedding_size": 32}),
    ("ErnieModel", {"use_task_id": False}),
    ("ErnieModel", {"use_task_id": True, "type_vocab_size": 2}),
    *(
        (f"EuroBert{head}", {**EUROBERT, "classifier_pooling": pooling})
        for head, pooling in product(HEADS, ("bos", "mean"))
    ),
    *((f"ModernBert{head}", MODERNBERT) for head in HEADS),
]


@pytest.mark.parametrize(("architecture", "config"), SHAPES)
def test_every_shape_is_that_of_transformers(
    architecture: str, config: dict[str, Any], kernels: str, make_tiny: MakeTiny
) -> None:
    family = next(name for name in sorted(FAMILIES, reverse=True) if architecture.startswith(name))
    types = config.get("type_vocab_size", 0) > 1 or FAMILIES[family].types
    tokenizer = FAMILIES[family].tokenizer
    folder = make_tiny(architecture, tokenizer, types=types, num_labels=3, **config)
    assert_head_matches(folder, kernels, types=types)
