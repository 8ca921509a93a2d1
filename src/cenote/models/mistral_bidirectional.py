"""Mistral turned to both sides, for vectors: GritLM (Muennighoff et al. 2024, arXiv:2402.09906).

It knows nothing of instructions: which tokens take no part in pooling is each request's.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.models.base import ModelInfo
from cenote.models.mistral import MistralModel


class MistralBidirectionalModel(MistralModel):
    """The encoder alone. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo()

    @property
    def one_sided(self) -> bool:
        """Never."""
        return False

    def slides(self, at: int) -> bool:
        """No layer: the window is a decoder's."""
        return False
