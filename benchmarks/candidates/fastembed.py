"""fastembed, as its users run it: its own batching, on the same weights as a custom model."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from transformers import AutoConfig

from benchmarks.candidates.export import export, max_tokens
from benchmarks.work import Array


class Embedder:
    """`TextEmbedding.embed`."""

    def __init__(self, name: str, model: str) -> None:
        self.name = name
        file = Path(tempfile.mkdtemp(prefix="benchmark-fastembed-")) / "model.onnx"
        file.symlink_to(export(model, head=False))
        for part in Path(model).glob("*.json"):
            shutil.copy(part, file.parent)
        _limit(file.parent / "tokenizer_config.json", max_tokens(Path(model)))
        TextEmbedding.add_custom_model(
            model=name,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf=name),
            dim=AutoConfig.from_pretrained(model).hidden_size,
            model_file=file.name,
        )
        self._model = TextEmbedding(name, specific_model_path=str(file.parent))

    def run(self, work: Sequence[str]) -> Array:
        return np.stack(list(self._model.embed(list(work)))).astype(np.float32)

    def close(self) -> None:
        del self._model


def _limit(path: Path, tokens: int) -> None:
    """fastembed cuts where the tokenizer's config says, the others where the model does."""
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "model_max_length": tokens, "max_length": tokens}))
