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
    """The model's classifier on the rows of one token; `columns`: the classes that are kept, all
    where there are none. A request may name another token and other classes."""

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
        lengths = batch.cu_seqlens.diff()
        tags = torch.tensor([self._tag(item) for item in params], device=hidden.device)
        ends = batch.input_ids == tags.repeat_interleave(lengths, output_size=batch.num_tokens)
        sizes = [int(part.sum()) for part in ends.cpu().split_with_sizes(batch.seq_lens)]
        logits = self.model.classify(hidden[ends]).split_with_sizes(sizes)
        places = batch.positions[ends].to(torch.int32).split_with_sizes(sizes)
        return [
            Pooled(self._scores(own, item), where)
            for own, where, item in zip(logits, places, params, strict=True)
        ]

    def reads(self, token_ids: Sequence[int], params: PoolingParams) -> Sequence[int]:
        """The ends of steps."""
        tag = self._tag(params)
        return [at for at, token in enumerate(token_ids) if token == tag]

    def _tag(self, params: PoolingParams) -> int:
        return self.tag if params.step_tag_id is None else params.step_tag_id

    def _scores(self, logits: Tensor, params: PoolingParams) -> Tensor:
        """One prompt's, `[steps, classes]`, of those classes alone."""
        columns = params.returned_token_ids or self.columns
        if columns:
            logits = logits[:, list(columns)]
        return logits if params.use_activation is False else self.activation(logits)


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
