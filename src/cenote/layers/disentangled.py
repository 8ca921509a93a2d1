"""Self-attention of DeBERTa: content and relative distance with vectors of their own.

The vectors of distances are products of a table with weights, so they are made once, at load. It
knows nothing of how a configuration spells its settings.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cenote.errors import ModelLoadError
from cenote.kernels.attention import AttentionSpec, AttentionTerms
from cenote.kernels.disentangled import Distances, DistanceVectors, disentangled_attention
from cenote.kernels.norm import NormWeight
from cenote.layers.linear import Linear
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.packing import WeightForm


class DistanceTable(nn.Module):
    """One row of the model's width for each distance, shared by all layers, optionally normed."""

    def __init__(self, distances: Distances, hidden: int, norm: LayerNorm | None) -> None:
        super().__init__()
        self.distances = distances
        self.weight = nn.Parameter(torch.empty(2 * distances.span, hidden, dtype=torch.float32))
        self.norm = norm

    def rows(self) -> Tensor:
        """float32 `[2 · span, hidden]`, from parameters that are not packed yet."""
        if self.norm is None:
            return self.weight
        norm = self.norm
        return F.layer_norm(self.weight, norm.weight.shape, norm.weight, norm.bias, norm.eps)


class DisentangledAttention(nn.Module):
    """`[T, hidden] → [R, hidden]`, the rows that are read.

    `keys`: queries meet vectors of distances ("c2p"); `queries`: keys do ("p2c"). `shared` makes
    these vectors with the content's own weights. `fold` has to come before `pack`.
    """

    vectors: DistanceVectors

    def __init__(
        self, hidden: int, spec: AttentionSpec, *, keys: bool, queries: bool, shared: bool = False
    ) -> None:
        super().__init__()
        self.spec = spec
        self.wanted = (keys, queries)
        size = spec.q_size
        self.qkv = Linear(hidden, 3 * size)
        # Shared weights are folded into the vectors of distances, which are the same for all rows.
        self.qkv.adaptable = not shared
        self.out = Linear(size, hidden)
        self.position_keys = Linear(hidden, size) if keys and not shared else None
        self.position_queries = Linear(hidden, size) if queries and not shared else None
        for folded in (self.position_keys, self.position_queries):
            if folded is not None:
                folded.adaptable = False

    def fold(self, table: DistanceTable | None) -> None:
        """Makes the vectors of distances; their weights are then let go."""
        if table is None:
            self.vectors = DistanceVectors(Distances(1, 0, 0), None, None)
            return
        rows, size = table.rows(), self.spec.q_size
        keys = queries = None
        if self.wanted[0]:
            keys = _project(rows, self.position_keys, self.qkv, slice(size, 2 * size))
        if self.wanted[1]:
            queries = _project(rows, self.position_queries, self.qkv, slice(0, size))
        self.vectors = DistanceVectors(table.distances, keys, queries)
        self.position_keys = self.position_queries = None

    def pack(self, form: WeightForm) -> None:
        """Prepares the two products, and the vectors for what they are multiplied with."""
        self.qkv.pack(form)
        self.out.pack(form)
        self.vectors = self.vectors.to(form.dtype)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms, *, post_norm: NormWeight
    ) -> Tensor:
        """post_norm(out(attention(qkv(hidden))) + hidden), float32."""
        q, k, v = self.qkv(hidden).chunk(3, dim=1)
        context = disentangled_attention(q, k, v, batch, self.spec, self.vectors, terms.key_mask)
        out: Tensor = self.out(
            batch.take_read(context),
            residual=batch.take_read(hidden),
            post_norm=post_norm,
            out_dtype=torch.float32,
        )
        return out


def _project(rows: Tensor, own: Linear | None, content: Linear, part: slice) -> Tensor:
    """rows · Wᵀ + b in float32, by the part of the content's weights where there are none own."""
    if own is not None:
        return F.linear(rows, own.weight.float(), own.bias).detach()
    bias = None if content.bias is None else content.bias[part]
    return F.linear(rows, content.weight[part].float(), bias).detach()


class InterleavedAttention(DisentangledAttention):
    """As DeBERTa's first version keeps its weights: query, key and value rows head by head.

    Keys have no bias, nor do the distances' keys.
    """

    def __init__(self, hidden: int, spec: AttentionSpec, *, keys: bool, queries: bool) -> None:
        super().__init__(hidden, spec, keys=keys, queries=queries)
        del self.qkv  # made by `fold`
        size = spec.q_size
        self.in_proj = Linear(hidden, 3 * size, bias=False)
        self.in_proj.adaptable = False
        self.q_bias = nn.Parameter(torch.empty(size, dtype=torch.float32))
        self.v_bias = nn.Parameter(torch.empty(size, dtype=torch.float32))
        if keys:
            self.position_keys = Linear(hidden, size, bias=False)
            self.position_keys.adaptable = False

    def fold(self, table: DistanceTable | None) -> None:
        """Lays the content's weights out as all queries, all keys, all values."""
        spec = self.spec
        weight = self.in_proj.weight.view(spec.num_heads, 3, spec.head_dim, -1)
        bias = torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        self.qkv = Linear.holding(weight.transpose(0, 1).reshape(3 * spec.q_size, -1), bias)
        del self.in_proj, self.q_bias, self.v_bias
        super().fold(table)


class NeighbourConvolution(nn.Module):
    """norm(residual + activation(convolution(hidden))) over each sequence's neighbouring tokens.

    Of odd `width`; beyond the ends of a sequence are zeros. Raises ModelLoadError for an even one.
    """

    def __init__(self, hidden: int, width: int, activation: str, norm: LayerNorm) -> None:
        super().__init__()
        if width % 2 == 0:
            raise ModelLoadError(f"config.json: conv_kernel_size must be odd, not {width}.")
        self.width = width
        self.activation = activation
        self.weight = nn.Parameter(torch.empty(hidden, hidden, width))
        self.bias = nn.Parameter(torch.empty(hidden, dtype=torch.float32))
        self.norm = norm

    def pack(self, form: WeightForm) -> None:
        """Lays the kernel out as one matrix `[hidden, width · hidden]`."""
        matrix = self.weight.transpose(1, 2).flatten(1)
        self.product = Linear.holding(matrix, self.bias)
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        self.product.pack(form)
        self.norm.pack(form)

    def forward(self, hidden: Tensor, residual: Tensor, batch: PackedBatch) -> Tensor:
        """Both float32 `[T, hidden]` → the same."""
        lengths = batch.cu_seqlens.diff()
        last = lengths.repeat_interleave(lengths, output_size=hidden.shape[0]) - 1
        reach = self.width // 2
        neighbours = []
        for offset in range(-reach, reach + 1):
            place = batch.positions + offset
            inside = (place >= 0) & (place <= last)
            neighbours.append(hidden.roll(-offset, 0) * inside.unsqueeze(1))
        out: Tensor = self.product(
            torch.cat(neighbours, dim=1),
            activation=self.activation,
            residual=residual,
            post_norm=self.norm.prepared,
            out_dtype=torch.float32,
        )
        return out
