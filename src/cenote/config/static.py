"""Static embeddings: folders with a table and a tokenizer; a config.json in them is no encoder's.

Two forms: sentence-transformers' StaticEmbedding module (`embedding.weight`), and Model2Vec's
(`embeddings`, with an optional row for each token, `mapping`, and factor for each token,
`weights`). Shapes are read from the weights' header; it loads no weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cenote.config.files import read_object
from cenote.config.sentence_transformers import read_modules, transformer_folder
from cenote.errors import ModelLoadError

MODEL_TYPE = "static"

# The reference has no limit; this one keeps a queue's memory bounded and can be raised.
MAX_LENGTH = 8192

_OWN = ("embedding.weight", "embeddings")
_PER_TOKEN = ("mapping", "weights")


def static_config(folder: Path) -> dict[str, Any] | None:
    """What config.json would say of a static model; None for a folder of any other kind.

    `rows` is the table's height, `per_token` names the optional tensors that are there. Raises
    `ModelLoadError`.
    """
    own = read_object(folder / "config.json")
    kinds = [module.kind for module in read_modules(folder)]
    if "StaticEmbedding" not in kinds and own.get("model_type") != "model2vec":
        return None
    file = transformer_folder(folder) / "model.safetensors"
    shapes = _shapes(file)
    tables = [shapes[name] for name in _OWN if name in shapes]
    if len(tables) != 1 or len(tables[0]) != 2:
        raise ModelLoadError(f"{file}: expected one table, {' or '.join(_OWN)}; it has {shapes}.")
    rows, width = tables[0]
    per_token = tuple(name for name in _PER_TOKEN if name in shapes)
    tokens = {shapes[name][0] for name in per_token} or {rows}
    if len(tokens) != 1:
        raise ModelLoadError(f"{file}: mapping and weights differ in length: {shapes}.")
    return {
        "architectures": ["StaticEmbedding"],
        "model_type": MODEL_TYPE,
        "vocab_size": tokens.pop(),
        "hidden_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "rows": rows,
        "per_token": per_token,
        "normalize": bool(own.get("normalize", True)),
    }


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    if not file.is_file():
        raise ModelLoadError(f"{file.parent} has no model.safetensors, so it is no static model.")
    try:
        with safe_open(file, framework="np") as handle:
            return {name: tuple(handle.get_slice(name).get_shape()) for name in handle.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{file} is not a complete safetensors file ({error}).") from error
