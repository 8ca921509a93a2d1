"""ERNIE 2.0 and 3.0 (Sun et al. 2019, arXiv:1907.12412): BERT with one more embedding, of tasks.

Every token has task 0, as in the reference where none is given. It knows nothing of pooling.
"""

from __future__ import annotations

import torch
from torch import nn

from cenote.config.model import ModelConfig
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.layers.packing import WeightForm
from cenote.models.bert import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)


class TaskEmbedding(TokenEmbedding):
    """Adds the row of task 0, a constant, to every row of the token types."""

    def __init__(self, config: ModelConfig) -> None:
        hf, hidden = config.hf, config.hidden_size
        super().__init__(
            config.vocab_size,
            hidden,
            positions=config.positions,
            types=config.token_types,
            norm=LayerNorm(hidden, config.norm_eps),
        )
        tasks = int(hf.get("task_type_vocab_size", 3)) if hf.get("use_task_id") else 0
        self.tasks = nn.Parameter(torch.empty(tasks, hidden)) if tasks else None

    def pack(self, form: WeightForm) -> None:
        """Folds the task into the types, then gathers the tables."""
        if self.tasks is not None and self.types is not None:
            self.types = nn.Parameter(self.types + self.tasks[0], requires_grad=False)
            self.register_parameter("tasks", None)
        super().pack(form)


class ErnieModel(BertModel):
    """The encoder alone. A checkpoint's pooler and pre-training heads are not used."""

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """BERT's tables and that of tasks."""
        return TaskEmbedding(config)


class ErnieForSequenceClassification(ErnieModel, BertForSequenceClassification):
    """A class for a text or a pair."""


class ErnieForTokenClassification(ErnieModel, BertForTokenClassification):
    """A class for every token."""


class ErnieForMaskedLM(ErnieModel, BertForMaskedLM):
    """Logits over the vocabulary for every token."""
