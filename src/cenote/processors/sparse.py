"""Prompts of a sparse model, by side: an inference-free query has no special tokens around it.

It knows nothing of scoring, of HTTP or of how weights are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cenote.config.pooling import SparseConfig
from cenote.params import InputType
from cenote.processors.inputs import Prompt, PromptOptions
from cenote.processors.prepare import Preparer, TokenPrompt
from cenote.processors.prompts import side_of


def sparse_side(preparer: Preparer, options: PromptOptions) -> InputType:
    """The side that a request names, or the model's default one."""
    own = options.pooling_params.input_type if options.pooling_params else None
    named = options.input_type or own
    return side_of(named) if named else _config(preparer).default_side


def sparse_prompts(
    preparer: Preparer,
    prompts: Sequence[Prompt],
    options: PromptOptions,
    side: InputType,
    *,
    prefix: str,
    param: str = "input",
) -> list[TokenPrompt]:
    """Texts and token-id prompts as that side's tokens."""
    if side == "query" and _config(preparer).query_weights is not None:
        options = replace(options, add_special_tokens=False)
    return preparer.tokenize(prompts, options, prefix=prefix, param=param)


def _config(preparer: Preparer) -> SparseConfig:
    return preparer.config.pooler.sparse or SparseConfig()
