"""Architectures that have no file here, run by the transformers library: slower, but they run.

Sequences of a pack are padded to others of about their length, or, where padding changes a model's
results, run with those of their very length. It knows nothing of pooling.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cenote.errors import ModelLoadError
from cenote.layers.packed import PackedBatch
from cenote.models import transformers_library as library
from cenote.models.base import ModelInfo, PoolingModel
from cenote.models.padding import PaddedBatch, buckets, packed, padded

logger = logging.getLogger(__name__)


class TransformersModel(PoolingModel):
    """The body of any architecture: its last hidden states."""

    reentrant = False  # who knows what a network keeps
    network: nn.Module
    accepts: frozenset[str]  # arguments of what `run` calls
    exact: bool  # whether padding would change results

    @classmethod
    def body(cls) -> type[PoolingModel]:
        """The body of the same checkpoint."""
        return TransformersModel

    def load(self, dtype: torch.dtype) -> None:
        """Reads the folder's weights, strictly both ways. Raises ModelLoadError."""
        config, headed = self.config, self.info.head is not None
        self.take(library.read_network(config, dtype, headed=headed))
        try:
            self.exact = not self._tolerates_padding()
        except (ValueError, RuntimeError, TypeError, IndexError, AttributeError) as error:
            raise ModelLoadError(
                f"{config.architecture} can't be run on token ids alone in {dtype}: {error}"
            ) from error
        logger.warning(
            "%s: %s falls back to transformers %s, %s; it has no implementation of our own",
            config.name,
            config.architecture,
            library.version(),
            "one length at a time, because padding changes its results"
            if self.exact
            else "padded to about equal lengths",
        )

    def take(self, network: nn.Module) -> None:
        """Keeps the library's network."""
        self.network = network
        self.accepts = frozenset(inspect.signature(network.forward).parameters)

    @torch.inference_mode()
    def _tolerates_padding(self) -> bool:
        """Whether sequences give the same alone and padded to the longest one's length."""
        random = torch.Generator().manual_seed(0)
        longest = min(self.config.max_model_len, 61)
        # A single token shows what reaches over a sequence's end by however little.
        ids = [
            torch.randint(self.config.vocab_size, (n,), generator=random, dtype=torch.int32)
            for n in (1, max(longest // 3, 1), longest)
        ]
        alone = torch.cat([self._trial([one]) for one in ids])
        if "attention_mask" not in self.accepts:
            return False
        bound = 1e-4 if next(self.network.parameters()).dtype == torch.float32 else 5e-2
        difference = (alone - self._trial(ids)).abs().max()
        return bool(difference <= bound * alone.abs().max().clamp(min=1.0))

    def _trial(self, sequences: Sequence[Tensor]) -> Tensor:
        """What `run` gives of sequences of ids that are padded together, float32."""
        part = padded(packed(sequences), range(len(sequences)), self.padding_id)
        return self.run(part)[1].float()

    @property
    def padding_id(self) -> int:
        """What ids are padded with."""
        found = self.config.hf.get("pad_token_id")
        return found if isinstance(found, int) and 0 <= found < self.config.vocab_size else 0

    def forward(self, batch: PackedBatch) -> Tensor:
        """What `run` gives, `[R, width]` float32; zero in rows that it says nothing of."""
        out: Tensor | None = None
        for members in buckets(batch.seq_lens, exact=self.exact):
            rows, values = self.run(padded(batch, members, self.padding_id))
            if out is None:
                out = values.new_zeros((batch.num_tokens, values.shape[1]), dtype=torch.float32)
            out[rows] = values.float()
        if out is None:
            raise ValueError("A batch has at least one sequence.")
        return batch.take_read(out)

    def run(self, part: PaddedBatch) -> tuple[Tensor, Tensor]:
        """Rows of the pack, and what they are: `[n]` and `[n, width]`."""
        hidden = self.call(self.network, part).last_hidden_state
        return part.rows[part.real], hidden[part.real]

    def call(self, network: nn.Module, part: PaddedBatch) -> Any:
        """The library's output of a padded batch."""
        given = {"attention_mask": part.attended, "token_type_ids": part.types}
        extra = {
            name: value
            for name, value in given.items()
            if name in self.accepts and value is not None
        }
        return network(input_ids=part.ids, return_dict=True, **extra)


class TransformersForSequenceClassification(TransformersModel):
    """A class for a text or a pair: the library's logits stand in a sequence's first row."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="cls")

    def take(self, network: nn.Module) -> None:
        """As the base; rows are logits already."""
        super().take(network)
        self.classifier = nn.Identity()

    def run(self, part: PaddedBatch) -> tuple[Tensor, Tensor]:
        """A sequence's first row, and its logits."""
        return part.rows[:, 0], self.call(self.network, part).logits


class TransformersForTokenClassification(TransformersModel):
    """A class for every token: rows are the library's logits."""

    info: ClassVar[ModelInfo] = ModelInfo(head="token_classify")

    def take(self, network: nn.Module) -> None:
        """As the base; rows are logits already."""
        super().take(network)
        self.classifier = nn.Identity()

    def run(self, part: PaddedBatch) -> tuple[Tensor, Tensor]:
        """Every row, and its logits."""
        logits = self.call(self.network, part).logits
        return part.rows[part.real], logits[part.real]


class _HeadOnRows(TransformersModel):
    """A checkpoint whose body and head run apart: the head on rows that a pooler chooses."""

    def take(self, network: nn.Module) -> None:
        """Keeps the body as well."""
        super().take(network)
        self.body_network = getattr(network, str(network.base_model_prefix))
        self.accepts = frozenset(inspect.signature(self.body_network.forward).parameters)

    def run(self, part: PaddedBatch) -> tuple[Tensor, Tensor]:
        """Every row, and the body's hidden state."""
        hidden = self.call(self.body_network, part)[0]
        return part.rows[part.real], hidden[part.real]


class GivenRows(nn.Module):
    """In a body's place: its hidden states are what was put here last."""

    rows: Tensor  # [1, n, hidden]

    def forward(self, *_: Any, **__: Any) -> Any:
        """The library's output around the rows."""
        return library.body_output(self.rows)


class TransformersForMaskedLM(_HeadOnRows):
    """Logits over the vocabulary for every token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="vocab")

    def take(self, network: nn.Module) -> None:
        """Puts rows that are given in the place of the body's, so that the head runs alone.

        Raises ModelLoadError where the head's logits are not what they were.
        """
        super().take(network)
        ids = torch.arange(min(8, self.config.max_model_len, self.config.vocab_size)).unsqueeze(0)
        with torch.inference_mode():
            logits = network(input_ids=ids, return_dict=True).logits[0].float()
            hidden = self.body_network(input_ids=ids, return_dict=True)[0][0]
            self.given = GivenRows()
            setattr(network, str(network.base_model_prefix), self.given)
            if not torch.allclose(next(self.vocab_logits(hidden)), logits, rtol=1e-2, atol=1e-2):
                raise ModelLoadError(
                    f"The head of {self.config.architecture} is no function of single rows."
                )

    def vocab_logits(self, rows: Tensor) -> Iterator[Tensor]:
        """Logits `[n, vocab]` float32 of rows `[n, hidden]`: all of the vocabulary is one run."""
        self.given.rows = rows.to(next(self.network.parameters()).dtype).unsqueeze(0)
        ids = torch.zeros((1, rows.shape[0]), dtype=torch.long, device=rows.device)
        yield self.network(input_ids=ids, return_dict=True).logits[0].float()


class TransformersEncoderDecoderClassifier(_HeadOnRows):
    """BART's form: a head on the decoder's row of the last token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="last")
    head_names: ClassVar[tuple[str, ...]] = ("classification_head",)

    def take(self, network: nn.Module) -> None:
        """Keeps the head as well. Raises ModelLoadError where it isn't a function of one row."""
        super().take(network)
        found = [getattr(network, name) for name in self.head_names if hasattr(network, name)]
        if not found:
            raise ModelLoadError(
                f"{type(network).__name__} has no head of the form that can be served: "
                f"{', '.join(self.head_names)}."
            )
        (self.classifier,) = found

    def classify(self, rows: Tensor) -> Tensor:
        """Logits `[n, num_labels]` float32 of rows `[n, hidden]`."""
        logits: Tensor = self.classifier(rows.to(next(self.network.parameters()).dtype))
        return logits.float()


class TransformersDecoder(TransformersModel):
    """A decoder: its last hidden states."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, default_pooling="last", classify_pooling="last"
    )


class TransformersDecoderClassifier(TransformersEncoderDecoderClassifier):
    """A decoder's form: one matrix on the row of the last token."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, head="classify", default_pooling="last", classify_pooling="last"
    )
    head_names: ClassVar[tuple[str, ...]] = ("score", "classifier")


# What serves an architecture, by the end of its name; the first that fits.
_BY_SUFFIX: dict[str, type[TransformersModel]] = {
    "ForSequenceClassification": TransformersForSequenceClassification,
    "ForTokenClassification": TransformersForTokenClassification,
    "ForMaskedLM": TransformersForMaskedLM,
    "ForCausalLM": TransformersModel,
    "ForConditionalGeneration": TransformersModel,
    "ForPreTraining": TransformersModel,
    "Model": TransformersModel,
}


def fallback_class(architecture: str) -> type[TransformersModel]:
    """The class that serves an architecture of transformers.

    Raises ModelLoadError where the library isn't installed, has no such text model, or the model's
    head is of no kind that is served.
    """
    network = library.network_class(architecture)
    served = next((cls for end, cls in _BY_SUFFIX.items() if architecture.endswith(end)), None)
    if served is None:
        raise ModelLoadError(
            f"Architecture {architecture!r} falls back to transformers, but its head is none of "
            f"those that can be served: {', '.join(_BY_SUFFIX)}."
        )
    if served is TransformersForSequenceClassification and library.is_encoder_decoder(network):
        return TransformersEncoderDecoderClassifier
    return _DECODERS.get(served, served) if library.is_causal(network) else served


_DECODERS: dict[type[TransformersModel], type[TransformersModel]] = {
    TransformersModel: TransformersDecoder,
    TransformersForSequenceClassification: TransformersDecoderClassifier,
}
