"""Special tokens by role, as families name them where a folder doesn't say. It reads nothing."""

from __future__ import annotations

from collections.abc import Mapping

BERT: Mapping[str, str] = {
    "cls": "[CLS]",
    "sep": "[SEP]",
    "pad": "[PAD]",
    "unk": "[UNK]",
    "mask": "[MASK]",
}
ROBERTA: Mapping[str, str] = {
    "cls": "<s>",
    "sep": "</s>",
    "unk": "<unk>",
    "pad": "<pad>",
    "mask": "<mask>",
}
