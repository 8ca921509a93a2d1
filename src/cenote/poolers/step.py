"""Class scores at the tokens that end the steps of an answer (process reward models).

It knows nothing of what the classes mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled
from cenote.poolers.heads import ClassActivation
from cenote.poolers.skiplist import skip_ids

# What ends a step where the configuration names no `step_tag_id`.
STEP_TOKEN = "<extra_0>"


class StepPooler:
    """The model's classifier on the rows of one token; `columns`: the classes that are kept."""

    def __init__(
        self,
        model: PoolingModel,
        activation: ClassActivation,
        *,
        tag: int,
        columns: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.activation = activation
        self.tag = tag
        self.columns = list(columns)

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Scores `[steps, classes]` with their prompt positions; a prompt may have no steps."""
        ends = batch.input_ids == self.tag
        sizes = [int(part.sum()) for part in ends.cpu().split_with_sizes(batch.seq_lens)]
        logits = self.model.classify(hidden[ends])
        if self.columns:
            logits = logits[:, self.columns]
        scores = self.activation(logits)
        raw = [item.use_activation is False for item in params]
        rows = zip(
            logits.split_with_sizes(sizes),
            scores.split_with_sizes(sizes),
            batch.positions[ends].to(torch.int32).split_with_sizes(sizes),
            raw,
            strict=True,
        )
        return [Pooled(logit if plain else score, where) for logit, score, where, plain in rows]


def step_pooler(
    config: ModelConfig, model: PoolingModel, activation: ClassActivation
) -> StepPooler:
    """By the configuration's `step_tag_id` and `returned_token_ids`. Raises ModelLoadError."""
    tag = config.hf.get("step_tag_id")
    if tag is None:
        tag = next(iter(skip_ids(config.transformer_path, (STEP_TOKEN,))), None)
    if not isinstance(tag, int):
        raise ModelLoadError(
            f"config.json: step_tag_id must be a token id, not {tag!r} (without it, {STEP_TOKEN} "
            "must be in the vocabulary)."
        )
    columns = config.hf.get("returned_token_ids") or []
    bad = [at for at in columns if not isinstance(at, int) or not 0 <= at < config.num_labels]
    if bad:
        raise ModelLoadError(
            f"config.json: returned_token_ids {bad} are not among the {config.num_labels} classes."
        )
    return StepPooler(model, activation, tag=tag, columns=columns)
