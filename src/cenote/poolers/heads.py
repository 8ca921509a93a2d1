"""What stands between pooled rows and a result: dense modules, normalising, class activations.

Everything runs in float32, whatever the model computes in. It knows no pooling method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.config.pooling import DenseConfig
from cenote.errors import ModelLoadError
from cenote.kernels.activation import FUNCTIONS, activate
from cenote.kernels.pooling import normalize
from cenote.layers.linear import Linear
from cenote.layers.packing import WeightForm
from cenote.loader.rules import Rename
from cenote.loader.weights import load_weights
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled, each_row

_DENSE_RULES = (Rename(r"linear\.(weight|bias)", r"linear.\1"),)

ClassActivation = Callable[[Tensor], Tensor]


class Dense(nn.Module):
    """activation(linear(rows)), and the rows or residual(rows) added where that is wanted: a Dense
    module of a sentence-transformers folder."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.activation, self.adds_rows = config.activation, config.residual
        make = partial(Linear, config.in_features, config.out_features, dtype=torch.float32)
        self.linear = make(bias=config.bias)
        narrows = config.residual and config.in_features != config.out_features
        self.residual = make(bias=False) if narrows else None

    def pack(self, form: WeightForm) -> None:
        """Prepares the products."""
        for product in (self.linear, self.residual):
            if product is not None:
                product.pack(form)

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, in_features] → [n, out_features]` float32."""
        out = activate(self.activation, self.linear(rows))
        if not self.adds_rows:
            return out
        return out + (rows if self.residual is None else self.residual(rows))


def load_dense(folder: Path, modules: Sequence[DenseConfig], device: torch.device) -> list[Dense]:
    """The dense modules of a model folder, in order. Raises ModelLoadError as any weights do."""
    loaded = []
    for config in modules:
        if config.activation not in FUNCTIONS:
            raise ModelLoadError(
                f"{config.folder}/config.json: unknown activation {config.activation!r}. "
                f"Known: {sorted(FUNCTIONS)}."
            )
        with torch.device("meta"):
            dense = Dense(config)
        load_weights(dense, _DENSE_RULES, folder / config.folder, torch.float32)
        dense.requires_grad_(False).eval().to(device)
        dense.pack(WeightForm(torch.float32))
        loaded.append(dense)
    return loaded


def check_chain(modules: Sequence[DenseConfig], width: int) -> int:
    """The size of the last module's output. Raises ModelLoadError where sizes don't follow on."""
    for config in modules:
        if config.in_features != width:
            raise ModelLoadError(
                f"{config.folder}/config.json: in_features is {config.in_features}, but the "
                f"vectors that reach it have {width} numbers."
            )
        width = config.out_features
    return width


def finish_vectors(
    vectors: Tensor, sizes: Sequence[int], params: Sequence[PoolingParams], *, default: bool
) -> list[Tensor]:
    """Cuts to the wanted dimensions, then normalises, `sizes[i]` rows for request i.

    `default` is whether the model normalises where the request doesn't say.
    """
    wanted = _wanted(params, default)
    if len(set(wanted)) == 1:
        return list(_finish(vectors, *wanted[0]).split_with_sizes(list(sizes)))
    parts = vectors.split_with_sizes(list(sizes))
    return [_finish(part, *want) for part, want in zip(parts, wanted, strict=True)]


def finish_rows(vectors: Tensor, params: Sequence[PoolingParams], *, default: bool) -> list[Pooled]:
    """As `finish_vectors`, of one row `[N, D]` for each request."""
    wanted = _wanted(params, default)
    if len(set(wanted)) == 1:
        return each_row(_finish(vectors, *wanted[0]))
    rows = vectors.unsqueeze(1)
    return [Pooled(_finish(row, *want), row=0) for row, want in zip(rows, wanted, strict=True)]


def _wanted(params: Sequence[PoolingParams], default: bool) -> list[tuple[int | None, bool]]:
    """Each request's dimensions and whether it is normalised. Requests that want the same share one
    call, and in nearly every batch that is all of them."""
    return [
        (item.dimensions, default if item.use_activation is None else item.use_activation)
        for item in params
    ]


def _finish(vectors: Tensor, dimensions: int | None, unit_length: bool) -> Tensor:
    if dimensions is not None:
        vectors = vectors[:, :dimensions].contiguous()
    return normalize(vectors) if unit_length else vectors


def class_activation(config: ModelConfig) -> ClassActivation:
    """Logits to scores: the cross-encoder's own function, else by the kind of problem.

    Multi-label and a single label: sigmoid. Regression with several outputs, and a reward: as they
    are. Else softmax, as transformers and sentence-transformers do.
    """
    name = config.pooler.activation
    if name is None and config.architecture.endswith("ForRewardModel"):
        name = "identity"
    if name is None:
        if config.problem_type == "multi_label_classification" or config.num_labels == 1:
            name = "sigmoid"
        else:
            name = "identity" if config.problem_type == "regression" else "softmax"
    if name not in FUNCTIONS:
        raise ModelLoadError(f"Unknown activation {name!r} of the classifier.")
    return FUNCTIONS[name]
