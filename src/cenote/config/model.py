"""`config.json` of any family, read once into one normalised form that both processes share.

It knows no weights and no torch: the API process uses it for limits, labels and prompts, the engine
to build the model.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cenote.config import activations, architectures, fields, labels, limits, schema
from cenote.config.engine import EngineConfig
from cenote.config.files import read_object
from cenote.config.metadata import load_pooler_config
from cenote.config.pooling import PoolerConfig
from cenote.config.reranker import RerankerConfig, load_reranker
from cenote.config.sentence_transformers import transformer_folder
from cenote.config.static import MAX_LENGTH, MODEL_TYPE, static_config
from cenote.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model folder. Family-specific values stay in `hf` (the raw config.json).

    `max_model_len` is the longest prompt including special tokens: the tokenizer's, the positions'
    and sentence-transformers' limits taken together. `subfolder` is where config.json, weights and
    tokenizer lie in `path`; only early sentence-transformers models have one.
    """

    path: Path
    name: str
    revision: str
    architecture: str
    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_model_len: int
    norm_eps: float
    hidden_act: str  # canonical: gelu_erf, gelu_tanh, relu, silu…
    num_labels: int = 0
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    pooler: PoolerConfig = field(default_factory=PoolerConfig)
    hf: Mapping[str, Any] = field(default_factory=dict)
    subfolder: str = ""
    reranker: RerankerConfig | None = None

    @property
    def transformer_path(self) -> Path:
        """The folder of config.json, weights and tokenizer."""
        return self.path / self.subfolder

    @property
    def positions(self) -> int:
        """Rows of the position table. Raises `ModelLoadError` where config.json doesn't say."""
        return fields.positive_int(self.hf, fields.POSITIONS)

    @property
    def token_types(self) -> int:
        """Rows of the token type table, 0 where there is none: declared, or the family's own."""
        declared = self.hf.get("type_vocab_size")
        return architectures.TOKEN_TYPES.get(self.model_type, 0) if declared is None else declared

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the low-rank task adapters that are in the checkpoint itself, in its order."""
        return tuple(map(str, self.hf.get("lora_adaptations") or ()))


def load_model_config(
    folder: Path, *, name: str, revision: str, engine: EngineConfig
) -> ModelConfig:
    """Reads a model folder. Raises `ModelLoadError` that names the file or field at fault.

    A `config.json` without `architectures` gets the plain encoder of its model_type. Whether the
    architecture can be served is not checked here.
    """
    inner = transformer_folder(folder)
    hf = static_config(folder) or schema.checked(read_object(inner / "config.json"))
    if not hf:
        raise ModelLoadError(f"{inner} has no config.json, so it is not a model folder.")
    if hf.get("quantization_config"):
        raise ModelLoadError(
            f"config.json: quantization_config {reprlib.repr(hf['quantization_config'])} is not "
            "supported. Take the weights as they were before; quantization=int8 does it here."
        )
    part = fields.text_part(hf)
    model_type = str(part.get("model_type") or hf.get("model_type") or "")
    architecture = architectures.name_of(hf, model_type)
    hidden_size = fields.positive_int(part, fields.HIDDEN_SIZE)
    num_heads = fields.positive_int(part, fields.NUM_HEADS)
    names = labels.labels(hf, architecture)
    positions = limits.position_limit(part, model_type)
    pooler = load_pooler_config(folder, hf, engine)
    reranker = load_reranker(folder, hf, architecture, name=name, engine=engine)
    if reranker is not None and reranker.tokens:
        architecture, names = architectures.classifier_of(architecture), reranker.labels
    # A static model's tokenizer is another model's, and so is the limit that it names.
    wanted = engine.max_model_len or (MAX_LENGTH if model_type == MODEL_TYPE else None)
    return ModelConfig(
        path=folder,
        name=name,
        revision=revision,
        architecture=architecture,
        model_type=model_type,
        vocab_size=fields.positive_int(part, ("vocab_size",)),
        hidden_size=hidden_size,
        num_layers=fields.positive_int(part, fields.NUM_LAYERS),
        num_heads=num_heads,
        num_kv_heads=fields.positive_int(part, ("num_key_value_heads", "num_kv_heads"), num_heads),
        head_dim=fields.positive_int(part, ("head_dim", "d_kv"), max(hidden_size // num_heads, 1)),
        intermediate_size=fields.positive_int(part, fields.INTERMEDIATE_SIZE, 4 * hidden_size),
        max_model_len=limits.max_model_len(
            positions=positions,
            # PyLate saves here whichever side's length was in use last: a ColBERT has its own.
            declared=None if pooler.colbert else pooler.max_seq_length,
            tokenizer=None if pooler.colbert and positions else limits.tokenizer_limit(inner),
            wanted=wanted,
        ),
        norm_eps=fields.positive_float(part, fields.NORM_EPS, 1e-12),
        hidden_act=activations.from_hf(fields.text(part, fields.ACTIVATION, "gelu")),
        num_labels=len(names),
        labels=names,
        problem_type=labels.problem_type(hf),
        pooler=pooler,
        hf=hf,
        reranker=reranker,
        subfolder=str(inner.relative_to(folder)) if inner != folder else "",
    )
