"""JinaBERT v2 by its papers' formulas, since no library has the model without foreign code.

ALiBi: Press et al. 2021, arXiv:2108.12409. The model: Günther et al. 2023, arXiv:2310.19923.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from heads import Rows
from reference import Served
from safetensors.torch import load_file, save_file
from tiny import edit_config
from torch import Tensor
from torch.nn import functional as F

PLAIN = {
    "mlp.gated_layers.weight": (128, 32),
    "mlp.wo.weight": (32, 64),
    "mlp.wo.bias": (32,),
    "mlp.layernorm.weight": (32,),
    "mlp.layernorm.bias": (32,),
}
NORMED = {
    "mlp.up_gated_layer.weight": (128, 32),
    "mlp.down_layer.weight": (32, 64),
    "mlp.down_layer.bias": (32,),
    **{f"layer_norm_{i}.{kind}": (32,) for i in (1, 2) for kind in ("weight", "bias")},
    **{
        f"attention.self.layer_norm_{part}.{kind}": (32,)
        for part in "qk"
        for kind in ("weight", "bias")
    },
}


def save_jina(
    bert: Path, folder: Path, architecture: str, shapes: dict[str, Any] = PLAIN, **config: Any
) -> None:
    """A JinaBERT of a tiny BERT's embeddings, attentions and head, and of random MLPs."""
    shutil.copytree(bert, folder, dirs_exist_ok=True)
    random = torch.Generator().manual_seed(1)
    gone = ("position", "intermediate", r".output.dense", r".output.LayerNorm")
    weights = {
        name: tensor
        for name, tensor in load_file(bert / "model.safetensors").items()
        if "attention.output" in name or not any(part in name for part in gone)
    }
    prefix = "" if architecture == "JinaBertModel" else "bert."
    for layer in (0, 1):
        for name, shape in shapes.items():
            tensor = torch.randn(shape, generator=random) * 0.2 + (len(shape) == 1)
            weights[f"{prefix}encoder.layer.{layer}.{name}"] = tensor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    jina = {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}
    edit_config(folder, architectures=[architecture], **jina, **config)


def formulas(
    served: Served, ids: Rows, types: Rows | None, source: Path | None = None
) -> list[Tensor]:
    """Hidden states, or the head's logits, in float64."""
    stored = load_file(served.config.path / "model.safetensors")
    w = {name.removeprefix("bert."): tensor.double() for name, tensor in stored.items()}
    slopes = 2.0 ** -(8 * torch.arange(1, 5, dtype=torch.float64) / 4)

    def dense(at: str, x: Tensor) -> Tensor:
        return F.linear(x, w[at + ".weight"], w[at + ".bias"])

    def normed(at: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (32,), w[at + ".weight"], w[at + ".bias"], 1e-12)

    def layer(at: str, x: Tensor, variant: bool) -> Tensor:
        q, k, v = (dense(f"{at}.attention.self.{p}", x) for p in ("query", "key", "value"))
        if variant:
            q = normed(f"{at}.attention.self.layer_norm_q", q)
            k = normed(f"{at}.attention.self.layer_norm_k", k)
        q, k, v = (part.view(-1, 4, 8).transpose(0, 1) for part in (q, k, v))
        positions = torch.arange(x.shape[0])
        distance = (positions[:, None] - positions[None, :]).abs()
        shares = (q @ k.mT / 8**0.5 - slopes[:, None, None] * distance).softmax(-1)
        out = dense(f"{at}.attention.output.dense", (shares @ v).transpose(0, 1).flatten(1))
        y = normed(f"{at}.attention.output.LayerNorm", out + x)
        if variant:
            y = normed(f"{at}.layer_norm_1", x + y)
            plain, gate = (y @ w[f"{at}.mlp.up_gated_layer.weight"].T).chunk(2, dim=-1)
            return normed(
                f"{at}.layer_norm_2", y + dense(f"{at}.mlp.down_layer", plain * F.gelu(gate))
            )
        gate, plain = (y @ w[f"{at}.mlp.gated_layers.weight"].T).chunk(2, dim=-1)
        return normed(f"{at}.mlp.layernorm", y + dense(f"{at}.mlp.wo", F.gelu(gate) * plain))

    def run(row: list[int], kinds: list[int]) -> Tensor:
        x = w["embeddings.word_embeddings.weight"][row]
        x = normed("embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][kinds])
        for at in ("encoder.layer.0", "encoder.layer.1"):
            x = layer(at, x, f"{at}.layer_norm_1.weight" in w)
        if served.config.architecture == "JinaBertForSequenceClassification":
            return dense("classifier", torch.tanh(dense("pooler.dense", x[0])))
        if served.config.architecture == "JinaBertForMaskedLM":
            at = "cls.predictions.transform"
            x = normed(f"{at}.LayerNorm", F.gelu(dense(f"{at}.dense", x)))
            return x @ w["embeddings.word_embeddings.weight"].T + w["cls.predictions.bias"]
        return dense("classifier", x) if "classifier.weight" in w else x

    kinds = types or [[0] * len(row) for row in ids]
    return [run(list(row), list(kind)).float() for row, kind in zip(ids, kinds, strict=True)]
