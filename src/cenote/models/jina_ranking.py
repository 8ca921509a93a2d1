"""Jina Reranker v3 (Wang et al. 2025, arXiv:2509.25085): Qwen3 that reads a query and all documents
as one prompt, and says what it thinks of each at a marker token after it.

It knows nothing of markers and prompts.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.layers.kv import KVShape
from cenote.layers.linear import Linear
from cenote.loader.rules import Rename, Rule
from cenote.models.base import ModelInfo
from cenote.models.llama import BODY_RULES, HEAD_RULE
from cenote.models.qwen3 import Qwen3Model

# The width of what is compared, the same for all releases.
WIDTH = 512


class Projector(nn.Module):
    """down(relu(up(row))), float32."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = Linear(hidden, hidden // 2, bias=False, dtype=torch.float32)
        self.down = Linear(hidden // 2, WIDTH, bias=False, dtype=torch.float32)

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, hidden] → [n, WIDTH]`."""
        out: Tensor = self.down(self.up(rows, activation="relu"))
        return out


class JinaForRanking(Qwen3Model):
    """The decoder with its projector. Rows of a whole prompt are needed at once: none is kept."""

    info: ClassVar[ModelInfo] = ModelInfo(default_pooling="last")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *BODY_RULES,
        HEAD_RULE,
        Rename(r"projector\.0\.weight", "projector.up.weight"),
        Rename(r"projector\.2\.weight", "projector.down.weight"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.projector = Projector(config.hidden_size)

    @property
    def causal(self) -> bool:
        """Not to the engine: nothing of a prompt is kept."""
        return False

    @property
    def kv_shape(self) -> KVShape | None:
        """Nothing is kept."""
        return None

    def project(self, rows: Tensor) -> Tensor:
        """What is compared, `[n, WIDTH]` float32."""
        out: Tensor = self.projector(rows)
        return out
