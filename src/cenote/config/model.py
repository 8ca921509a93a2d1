"""`config.json` of any family, read once into one normalised form that both processes share.

It knows no weights and no torch: the API process uses it for limits, labels and prompts, the engine
to build the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cenote.config.pooling import PoolerConfig


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model folder. Family-specific values stay in `hf` (the raw config.json).

    `max_model_len` is the longest prompt including special tokens: the tokenizer's, the positions'
    and sentence-transformers' limits taken together.
    """

    path: Path
    name: str
    revision: str
    architecture: str
    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_model_len: int
    norm_eps: float
    hidden_act: str  # canonical: gelu_erf, gelu_tanh, relu, silu…
    num_labels: int = 0
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    pooler: PoolerConfig = field(default_factory=PoolerConfig)
    hf: Mapping[str, Any] = field(default_factory=dict)
