"""Heads that several families share: a classifier of rows, and masked-language-model logits.

They take rows of hidden states and know neither which rows these are nor how a checkpoint names
their weights. A model with a head names the head's class before its encoder's among its bases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.linear import Linear
from cenote.layers.norm import LayerNorm
from cenote.layers.packing import WeightForm
from cenote.layers.vocabulary import VocabularyProduct
from cenote.models.base import ModelInfo, PoolingModel


class Classifier(nn.Module):
    """out(activation(dense(row))) in float32, the dense part as wide as the row."""

    def __init__(self, config: ModelConfig, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.dense = Linear(config.hidden_size, config.hidden_size, dtype=torch.float32)
        self.out = Linear(config.hidden_size, config.num_labels, dtype=torch.float32)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits `[n, num_labels]` float32 of rows `[n, hidden]`."""
        logits: Tensor = self.out(self.dense(rows, activation=self.activation))
        return logits


def linear_classifier(config: ModelConfig) -> Linear:
    """One matrix from a row to its logits, in float32."""
    return Linear(config.hidden_size, config.num_labels, dtype=torch.float32)


class MaskedLMHead(nn.Module):
    """norm(activation(dense(row))) times the word table, plus a bias.

    The output matrix is the word table, as in every released model of these families; a
    checkpoint's copy of it is not read. Where the table is narrower than the row, `dense` goes down
    to its width. `dense_bias`, `norm_bias` and `bias` say which of the three biases there are.
    Raises ModelLoadError for a configuration that unties the two.
    """

    bias: nn.Parameter | None
    decoder: VocabularyProduct

    def __init__(
        self,
        config: ModelConfig,
        words: TokenEmbedding,
        activation: str | None = None,
        *,
        dense_bias: bool = True,
        norm_bias: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if config.hf.get("tie_word_embeddings") is False:
            raise ModelLoadError(
                "config.json: tie_word_embeddings is false, but only masked-language-model heads "
                "whose output matrix is the word table are supported."
            )
        width = words.words.shape[1]
        self.activation = activation or config.hidden_act
        # In a tuple, so that the shared table isn't registered (and loaded) a second time.
        self.tied = (words,)
        self.dense = Linear(config.hidden_size, width, bias=dense_bias)
        self.norm = LayerNorm(width, config.norm_eps, bias=norm_bias)
        own = nn.Parameter(torch.empty(config.vocab_size, dtype=torch.float32)) if bias else None
        self.register_parameter("bias", own)

    def pack(self, form: WeightForm) -> None:
        """Prepares the transform, and the word table as a matrix."""
        self.dense.pack(form)
        self.norm.pack(form)
        self.decoder = VocabularyProduct(self.tied[0].words, self.bias, form.dtype)

    def forward(self, rows: Tensor) -> Iterator[Tensor]:
        """Logits `[n, entries]` float32, run by run of the vocabulary."""
        rows = self.dense(rows, activation=self.activation, post_norm=self.norm.prepared)
        return self.decoder(rows)


class TextClassifier(PoolingModel):
    """Adds a class for a text or a pair: out(tanh(dense(row of the first token)))."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="cls")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, "tanh")


class TokenClassifier(PoolingModel):
    """Adds a class for every token, by one matrix."""

    info: ClassVar[ModelInfo] = ModelInfo(head="token_classify")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = linear_classifier(config)


class MaskedLM(PoolingModel):
    """Adds logits over the vocabulary for every token of an encoder with `embeddings`.

    `head_activation` is the head's own; None: the encoder's.
    """

    info: ClassVar[ModelInfo] = ModelInfo(head="vocab")
    head_activation: ClassVar[str | None] = None
    embeddings: TokenEmbedding

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = MaskedLMHead(config, self.embeddings, self.head_activation)


class TokenProjection(PoolingModel):
    """Adds a projection of every token to ColBERT's width, without bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        dim = config.hidden_size if config.pooler.colbert is None else config.pooler.colbert.dim
        self.projection = Linear(config.hidden_size, dim, bias=False, dtype=torch.float32)

    def project(self, rows: Tensor) -> Tensor:
        """Token vectors `[n, dim]` float32 of rows `[n, hidden]`."""
        vectors: Tensor = self.projection(rows)
        return vectors
