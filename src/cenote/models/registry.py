"""Which class serves an architecture: a plain dict of import paths.

It imports no torch until a class is asked for, so that the list can be read anywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cenote.errors import ModelLoadError

if TYPE_CHECKING:
    from cenote.models.base import ModelInfo, PoolingModel

ARCHITECTURES: dict[str, str] = {
    "BertModel": "cenote.models.bert:BertModel",
    "BertForPreTraining": "cenote.models.bert:BertModel",
    "BertForSequenceClassification": "cenote.models.bert:BertForSequenceClassification",
    "BertForTokenClassification": "cenote.models.bert:BertForTokenClassification",
    "BertForMaskedLM": "cenote.models.bert:BertForMaskedLM",
    "HF_ColBERT": "cenote.models.bert:BertForColBERT",
    "ColBERT": "cenote.models.bert:BertForColBERT",
}


def model_class(architecture: str) -> type[PoolingModel]:
    """The class of an architecture (config.json's name). Raises ModelLoadError if there is none."""
    try:
        path = ARCHITECTURES[architecture]
    except KeyError:
        raise ModelLoadError(
            f"Unsupported architecture {architecture!r}. Supported: {sorted(ARCHITECTURES)}."
        ) from None
    module, _, name = path.partition(":")
    found: type[PoolingModel] = getattr(import_module(module), name)
    return found


def model_info(architecture: str) -> ModelInfo:
    """What the engine must know of an architecture; imports its class."""
    return model_class(architecture).info
