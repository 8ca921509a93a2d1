"""Encoders with random weights, by family: what is deployed at base size, all as wide as BERT base.

Good for speed and agreement, not for quality. It knows nothing of tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

# About 1 / sqrt(hidden size): each layer changes its input, so a wrong one shows.
WEIGHT_RANGE = 0.04
POSITIONS = 2048

_BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": POSITIONS,
}
# RoBERTa and its kin count positions from 2.
_ROBERTA = {**_BASE, "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
_DEBERTA = {
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
}
# transformers has no ELECTRA-like stand-in for JinaBERT: see `_as_jina`.
_JINA = {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}


@dataclass(frozen=True, slots=True)
class Encoder:
    """An architecture of transformers and its configuration; `layers`: its name for their number.

    `then` are entries of config.json that turn it into a family which transformers hasn't got.
    """

    architecture: str
    config: Mapping[str, Any]
    layers: str = "num_hidden_layers"
    then: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path, **changes: Any) -> None:
        """A random model in `folder`, with `changes` of its configuration."""
        torch.manual_seed(0)
        cls = getattr(transformers, self.architecture)
        config = {"initializer_range": WEIGHT_RANGE, **self.config, **changes}
        cls(cls.config_class(**config)).save_pretrained(folder)
        if self.then:
            _as_jina(folder, self.then)


FAMILIES: dict[str, Encoder] = {
    "BERT": Encoder("BertModel", _BASE),
    "XLM-RoBERTa": Encoder(
        "XLMRobertaModel", {**_ROBERTA, "vocab_size": 250002, "pad_token_id": 1}
    ),
    "DistilBERT": Encoder(
        "DistilBertModel",
        {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}
        | {"max_position_embeddings": POSITIONS},
        "n_layers",
    ),
    "MPNet": Encoder("MPNetModel", {**_BASE, "max_position_embeddings": POSITIONS + 2}),
    "ALBERT": Encoder("AlbertModel", {**_BASE, "embedding_size": 128}),
    "ModernBERT": Encoder("ModernBertModel", {}),
    "Nomic BERT": Encoder("NomicBertModel", _BASE),
    "GTE": Encoder("GteModel", {**_BASE, "vocab_size": 250048}),
    "JinaBERT v2": Encoder("BertModel", _BASE, then=_JINA),
    "Jina v3": Encoder("JinaEmbeddingsV3Model", {**_ROBERTA, "pad_token_id": 1}),
    "DeBERTa v3": Encoder("DebertaV2Model", {**_BASE, **_DEBERTA, "vocab_size": 128100}),
    "EuroBERT": Encoder("EuroBertModel", _BASE),
}


def _as_jina(folder: Path, then: Mapping[str, Any]) -> None:
    """Turns a saved BERT into a JinaBERT: gated MLPs in place of its own, no positions."""
    weights = load_file(folder / "model.safetensors")
    random = torch.Generator().manual_seed(1)
    for name in list(weights):
        place, _, rest = name.partition(".intermediate.dense.")
        if rest == "weight":
            wide, hidden = weights[name].shape
            gated = torch.randn(2 * wide, hidden, generator=random) * WEIGHT_RANGE
            weights[f"{place}.mlp.gated_layers.weight"] = gated
        if rest or "position" in name:
            del weights[name]
        elif ".output." in name and ".attention." not in name:
            new = name.replace("output.dense", "mlp.wo").replace(
                "output.LayerNorm", "mlp.layernorm"
            )
            weights[new] = weights.pop(name)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "architectures": ["JinaBertModel"], **then}))
