"""The contract of every model: packed ids in, hidden states out, and a declarative weight list.

A model knows nothing of pooling, requests or the machine. Its head, if it has one, is a function on
rows of hidden states; which rows, and what is done with the result, is the pooler's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.layers.adapters import ActiveAdapters
from cenote.layers.kv import KVShape
from cenote.layers.packed import PackedBatch
from cenote.loader.rules import Rule

PoolingDefault = Literal["cls", "mean", "last"]

# `late`: every row is classified, and the logits are averaged.
ClassifyPooling = Literal["cls", "mean", "last", "late"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the rest of the engine must know of an architecture.

    `causal` decides whether any KV code is built and drops all token-level tasks; a model that
    reads from left to right but runs its prompts whole is not causal in this sense. `head` says
    which of the two head functions the class has. `classify_pooling` is which row(s) of a sequence
    its classifier reads, unless the configuration says (see `PoolingModel.classify_pooling`).
    """

    causal: bool = False
    head: Literal["classify", "token_classify", "vocab"] | None = None
    default_pooling: PoolingDefault = "mean"
    classify_pooling: ClassifyPooling = "cls"


class PoolingModel(nn.Module):
    """Base of all models. Parameters are made on the meta device and filled by the loader."""

    info: ClassVar[ModelInfo] = ModelInfo()
    reentrant: ClassVar[bool] = True  # batches may run on several threads at a time
    weight_rules: ClassVar[tuple[Rule, ...]] = ()
    classifier: nn.Module  # rows to logits; models whose head is classify or token_classify
    head: nn.Module  # rows to runs of vocabulary logits; models whose head is vocab

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.adapters = ActiveAdapters()

    def __call__(self, batch: PackedBatch) -> Tensor:
        """`forward`, its layers told which rows have which adapter.

        Adapters are for rows of the whole pack: where there are any, all rows run to the end.
        """
        self.adapters.for_batch(batch)
        runs = batch.whole() if self.adapters.groups else batch
        hidden: Tensor = super().__call__(runs)
        return hidden if runs is batch else batch.take_read(hidden)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]` of the rows that are read, float32."""
        raise NotImplementedError

    @classmethod
    def body(cls) -> type[PoolingModel]:
        """What serves the same checkpoint where its head is not used: the nearest base without one.

        That base has to ignore the head's tensors.
        """
        bases = (base for base in cls.__mro__ if issubclass(base, PoolingModel))
        return next(base for base in bases if base.info.head is None)

    @property
    def causal(self) -> bool:
        """Whether this checkpoint reads from left to right only; some turn their family's way."""
        return self.info.causal

    @property
    def kv_shape(self) -> KVShape | None:
        """What is kept of each token, so that a prompt can run in parts; None: it runs whole."""
        return None

    @property
    def classify_pooling(self) -> ClassifyPooling:
        """Which row(s) of a sequence the classifier reads."""
        return self.info.classify_pooling

    def classify(self, rows: Tensor) -> Tensor:
        """Logits `[n, num_labels]` float32 of rows `[n, hidden]`; only with a `classifier`."""
        logits: Tensor = self.classifier(rows)
        return logits

    def project(self, rows: Tensor) -> Tensor:
        """Token vectors `[n, dim]` float32 of rows `[n, hidden]`; the rows where there is none."""
        return rows

    def vocab_logits(self, rows: Tensor) -> Iterator[Tensor]:
        """Logits of rows `[n, hidden]`, by runs of the vocabulary in its order, each `[n, entries]`
        float32; only with a language-model `head`."""
        logits: Iterator[Tensor] = self.head(rows)
        return logits
