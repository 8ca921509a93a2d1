"""Whole layers in one call, so that activations stay in a core's caches from layer to layer.

A `LayerStack` holds what the layers' own modules hold, prepared. It knows no model, and it has no
torch form: where the kernels don't take a layer, the modules run one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from cenote.errors import InvalidRequest
from cenote.kernels import backend
from cenote.kernels.activation import NATIVE_CODES
from cenote.kernels.attention import AttentionSpec, AttentionTerms, Lengths, native_head
from cenote.kernels.backend import DTYPE_CODES
from cenote.kernels.linear import GATE_CODES, Gate, LinearWeight
from cenote.kernels.norm import NormWeight

# Of a layer's attention, and of its MLP.
Norms = tuple[NormWeight | None, NormWeight | None]


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """cos and sin, float32 `[max_positions, rotary_dim / 2]`; see `kernels.rotary`."""

    cos: Tensor
    sin: Tensor
    interleaved: bool


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """x' = post(out(attention(qkv(pre(x)))) + x), then x" = post(mlp(pre(x')) + x').

    If it `adds_behind`, x and x' are added to what the two post-norms give. `qkv` gives queries,
    keys and values in this order, the first two normed head by head and turned by `rotary`; `up`
    is in halves if gated.
    """

    spec: AttentionSpec
    qkv: LinearWeight
    out: LinearWeight
    up: LinearWeight
    down: LinearWeight
    activation: str
    gate: Gate
    pre_norms: Norms
    post_norms: Norms
    head_norms: Norms  # of a head's queries and keys, both or none
    rotary: RotaryTables | None
    kept: int | None  # its place among the layers of `Kept`
    adds_behind: bool = False


class Read(Lengths, Protocol):
    """Rows that are wanted of the last layer; see `ReadRows`."""

    @property
    def rows(self) -> Tensor:
        """int64, ascending."""

    @property
    def trailing(self) -> bool:
        """Whether they are the last ones of their sequences."""


class KeySlots(Lengths, Protocol):
    """Where the keys of each sequence lie."""

    @property
    def slots(self) -> Tensor:
        """int64, sequence after sequence."""


class Kept(Protocol):
    """Keys and values that outlive the call; see `KVView`."""

    @property
    def entries(self) -> Tensor:
        """`[layers, slots, 2 · kv_size]`."""

    @property
    def written(self) -> Tensor:
        """The slot of each row of the pack, int64."""

    @property
    def read(self) -> KeySlots | None:
        """None: the pack has all keys."""

    @property
    def joined(self) -> Tensor | None:
        """uint8 `[N]`, 1 for a sequence that reads, or is read, across the bound before it."""


@dataclass(frozen=True, slots=True)
class LayerStack:
    """Layers that the native kernels take, of one width and one dtype."""

    native: Any
    dtype: torch.dtype  # of what lies between two products
    layers: Sequence[LayerWeights]  # whose tables the native side only points to

    @classmethod
    def of(cls, layers: Sequence[LayerWeights]) -> LayerStack | None:
        """None where the native kernels don't take them all."""
        module = backend.native()
        dtypes = {layer.qkv.dtype for layer in layers}
        if module is None or len(dtypes) != 1 or not all(map(_is_native, layers)):
            return None
        dtype = dtypes.pop()
        native = module.LayerStack(layers[0].qkv.in_features, DTYPE_CODES[dtype])
        for layer in layers:
            _add(native, layer)
        return cls(native, dtype, layers)

    def run(
        self,
        hidden: Tensor,
        lengths: Lengths,
        *,
        positions: Tensor,
        terms: AttentionTerms,
        read: Read | None,
        kept: Kept | None = None,
    ) -> Tensor:
        """`hidden` `[T, width]` float32, which is used up, after the last layer: all of its rows,
        or those that are read. `kept` is of `dtype`; where it is read, no key is hidden.

        A row gets, bit for bit, what the layers' modules give it. Raises InvalidRequest for a
        position outside a rotary table.
        """
        slopes, bias, key_mask = terms.alibi_slopes, terms.bias, terms.key_mask
        rows = {} if kept is None else _kept(kept)
        out = hidden
        if read is not None:
            out = torch.empty((len(read.rows), hidden.shape[1]), dtype=torch.float32)
            rows |= {
                "read_rows": read.rows.data_ptr(),
                "read_cu_seqlens": read.cu_seqlens.data_ptr(),
                "read_trailing": read.trailing,
                "out": out.data_ptr(),
            }
        try:
            self.native.run(
                hidden.data_ptr(),
                lengths.cu_seqlens.data_ptr(),
                len(lengths.seq_lens),
                positions=positions.data_ptr(),
                alibi_slopes=0 if slopes is None else slopes.data_ptr(),
                bias=0 if bias is None else bias.data_ptr(),
                bias_size=0 if bias is None else bias.shape[-1],
                key_mask=0 if key_mask is None else key_mask.data_ptr(),
                **rows,
            )
        except IndexError as error:
            raise InvalidRequest(f"A position is outside the rotary table: {error}.") from error
        return out


def _kept(kept: Kept) -> dict[str, int]:
    layers, slots, width = kept.entries.shape
    found = {
        "kept": kept.entries.data_ptr(),
        "kept_layers": layers,
        "kept_slots": slots,
        "kept_width": width,
        "written": kept.written.data_ptr(),
    }
    if kept.read is not None:
        found["key_slots"] = kept.read.slots.data_ptr()
        found["key_cu_seqlens"] = kept.read.cu_seqlens.data_ptr()
    if kept.joined is not None:
        found["joined"] = kept.joined.data_ptr()
    return found


def _is_native(layer: LayerWeights) -> bool:
    weights = (layer.qkv, layer.out, layer.up, layer.down)
    norms = (*layer.pre_norms, *layer.post_norms, *layer.head_norms)
    return (
        all(weight.packed is not None for weight in weights)
        and all(norm is None or norm.native is not None for norm in norms)
        and layer.activation in NATIVE_CODES
        and native_head(layer.spec)
    )


def _add(native: Any, layer: LayerWeights) -> None:
    spec, rotary = layer.spec, layer.rotary
    pre, post, head = (
        [norm and norm.native for norm in norms]
        for norms in (layer.pre_norms, layer.post_norms, layer.head_norms)
    )
    native.add(
        layer.qkv.packed,
        layer.out.packed,
        layer.up.packed,
        layer.down.packed,
        attention_pre=pre[0],
        attention_post=post[0],
        mlp_pre=pre[1],
        mlp_post=post[1],
        adds_behind=layer.adds_behind,
        query_norm=head[0],
        key_norm=head[1],
        activation=NATIVE_CODES[layer.activation],
        gated=GATE_CODES[layer.gate],
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        scale=spec.scale,
        causal=spec.causal,
        window_left=spec.window[0],
        window_right=spec.window[1],
        softcap=spec.softcap,
        rotary_dim=0 if rotary is None else 2 * rotary.cos.shape[1],
        cos=0 if rotary is None else rotary.cos.data_ptr(),
        sin=0 if rotary is None else rotary.sin.data_ptr(),
        max_positions=0 if rotary is None else rotary.cos.shape[0],
        interleaved=rotary is not None and rotary.interleaved,
        kept=-1 if layer.kept is None else layer.kept,
    )
