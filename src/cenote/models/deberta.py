"""DeBERTa's first version (He et al. 2020, arXiv:2006.03654): a row for every distance.

The second version without buckets, norm of distances or convolution, and with weights laid out
head by head. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.kernels.disentangled import Distances
from cenote.layers.disentangled import DistanceTable, InterleavedAttention
from cenote.loader.rules import Rename, Rule
from cenote.models.deberta_v2 import (
    BODY_HEADS,
    EMBEDDING_RULES,
    LAYER_RULES,
    LM_RULES,
    NO_LM,
    SEQUENCE_RULES,
    DebertaV2ForMaskedLM,
    DebertaV2ForSequenceClassification,
    DebertaV2ForTokenClassification,
    DebertaV2Model,
    attention_kinds,
    attention_spec,
    max_distance,
)

_SELF = r"(?:deberta\.)?encoder\.layer\.(\d+)\.attention\.self\."
_HERE = r"layers.\1.attention."
_BODY_RULES: tuple[Rule, ...] = (
    *EMBEDDING_RULES,
    *LAYER_RULES,
    Rename(_SELF + r"in_proj\.weight", _HERE + "in_proj.weight"),
    Rename(_SELF + r"(q_bias|v_bias)", _HERE + r"\2"),
    Rename(_SELF + r"pos_proj\.weight", _HERE + "position_keys.weight"),
    Rename(_SELF + r"pos_q_proj\.(weight|bias)", _HERE + r"position_queries.\2"),
)


class DebertaModel(DebertaV2Model):
    """The encoder alone. A checkpoint's heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *BODY_HEADS)

    def make_table(self, config: ModelConfig) -> DistanceTable:
        """A row for every distance up to the largest, which farther ones share."""
        furthest = max_distance(config)
        return DistanceTable(Distances(furthest, 0, furthest), config.hidden_size, None)

    def make_attention(self, config: ModelConfig) -> InterleavedAttention:
        """Raises ModelLoadError for talking heads, which no released model has."""
        if config.hf.get("talking_head"):
            raise ModelLoadError("config.json: talking_head is not supported.")
        kinds = attention_kinds(config) if config.hf.get("relative_attention") else ()
        spec = attention_spec(config)
        return InterleavedAttention(
            config.hidden_size, spec, keys="c2p" in kinds, queries="p2c" in kinds
        )


class DebertaForSequenceClassification(DebertaModel, DebertaV2ForSequenceClassification):
    """A class for a text or a pair: classifier(gelu(pooler(row of [CLS])))."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *SEQUENCE_RULES)


class DebertaForTokenClassification(DebertaModel, DebertaV2ForTokenClassification):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, NO_LM)


class DebertaForMaskedLM(DebertaModel, DebertaV2ForMaskedLM):
    """Logits over the vocabulary for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *LM_RULES)
