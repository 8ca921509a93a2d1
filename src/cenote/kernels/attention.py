"""Attention over the pack: every sequence sees its own keys only, and nothing is padded.

It knows nothing of projections, rotary positions or caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from cenote.kernels import backend
from cenote.kernels.backend import DTYPE_CODES
from cenote.kernels.groups import Group, equal_lengths, rows_at


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """The shape and the rules of one attention, the same for every batch.

    Query i of a sequence stands at position `keys - queries + i`. It sees the keys at most
    `window[0]` before and `window[1]` after that position (-1: no limit), none after it if
    `causal`. Logits: `softcap · tanh(x / softcap)` where softcap isn't 0, then the additive terms.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def is_positional(self) -> bool:
        """Whether it matters where a query stands."""
        return self.causal or self.window != (-1, -1)

    @property
    def is_plain(self) -> bool:
        return not self.is_positional and not self.softcap


@dataclass(frozen=True, slots=True)
class AttentionTerms:
    """What may be added to logits, and which keys are hidden.

    `alibi_slopes` float32 `[heads]`: minus slope · |i - j|. `bias` float32 `[heads, n, n]` by the
    positions within a sequence, n at least the longest. `key_mask` uint8 `[keys]`, 0: hidden. A
    query that sees no key gives zeros.
    """

    alibi_slopes: Tensor | None = None
    bias: Tensor | None = None
    key_mask: Tensor | None = None

    @property
    def is_positional(self) -> bool:
        """Whether it matters where a query stands."""
        return self.alibi_slopes is not None or self.bias is not None

    @property
    def is_empty(self) -> bool:
        return not self.is_positional and self.key_mask is None


NO_TERMS = AttentionTerms()


class Lengths(Protocol):
    """What says where sequences lie: a `PackedBatch`, or the keys' own lengths."""

    @property
    def cu_seqlens(self) -> Tensor:
        """Running sums of the lengths, int32 `[N + 1]`."""

    @property
    def seq_lens(self) -> list[int]:
        """The lengths on the host."""


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Lengths,
    spec: AttentionSpec,
    terms: AttentionTerms = NO_TERMS,
    key_lengths: Lengths | None = None,
) -> Tensor:
    """softmax(scale · q·kᵀ + terms) · v → `[T, heads · head_dim]` in q's dtype.

    q is `[T, heads · head_dim]`, k and v `[S, kv_heads · head_dim]`; they may be column slices of
    one fused projection. The softmax is in float32. `key_lengths` where the keys have lengths of
    their own (S differs from T).
    """
    module = native_for(q, spec)
    if module is None:
        return attention_torch(q, k, v, lengths, spec, terms, key_lengths)
    return attention_native(module, q, k, v, lengths, spec, terms, key_lengths)


def native_for(q: Tensor, spec: AttentionSpec) -> Any | None:
    """The compiled module if this process uses it and it takes such heads, else None."""
    return backend.native() if q.dtype in DTYPE_CODES and native_head(spec) else None


def native_head(spec: AttentionSpec) -> bool:
    """Whether the native kernel takes heads of this width."""
    return spec.head_dim % 8 == 0 and spec.head_dim <= 256


def attention_native(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Lengths,
    spec: AttentionSpec,
    terms: AttentionTerms,
    key_lengths: Lengths | None = None,
    **more: int,
) -> Tensor:
    """`attention` by `module`, which `native_for` gave; `more` goes to it as it is."""
    out = torch.empty((q.shape[0], spec.q_size), dtype=q.dtype)
    bias = terms.bias
    module.attention(
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        out.data_ptr(),
        DTYPE_CODES[q.dtype],
        q.stride(0),
        k.stride(0),
        v.stride(0),
        spec.q_size,
        lengths.cu_seqlens.data_ptr(),
        len(lengths.seq_lens),
        spec.num_heads,
        spec.num_kv_heads,
        spec.head_dim,
        spec.scale,
        cu_seqlens_k=0 if key_lengths is None else key_lengths.cu_seqlens.data_ptr(),
        causal=spec.causal,
        window_left=spec.window[0],
        window_right=spec.window[1],
        softcap=spec.softcap,
        alibi_slopes=0 if terms.alibi_slopes is None else terms.alibi_slopes.data_ptr(),
        bias=0 if bias is None else bias.data_ptr(),
        bias_size=0 if bias is None else bias.shape[-1],
        key_mask=0 if terms.key_mask is None else terms.key_mask.data_ptr(),
        **more,
    )
    return out


def attention_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Lengths,
    spec: AttentionSpec,
    terms: AttentionTerms = NO_TERMS,
    key_lengths: Lengths | None = None,
) -> Tensor:
    """The oracle of `attention`: sequences of equal length share one call, so none is padded.

    On a GPU in 16 bits torch's own attention over packed sequences does the same in one call.
    """
    if _fits_flash(q, spec, terms):
        return _flash(q, k, v, lengths, spec, key_lengths or lengths)
    out = torch.empty((q.shape[0], spec.q_size), dtype=q.dtype, device=q.device)
    query_lens = tuple(lengths.seq_lens)
    key_lens = query_lens if key_lengths is None else tuple(key_lengths.seq_lens)
    for group in equal_lengths(query_lens, key_lens):
        queries = rows_at(group.query_starts, group.queries, q.device)
        keys = queries if key_lengths is None else rows_at(group.key_starts, group.keys, q.device)
        count = len(group.query_starts)
        # [rows, heads · dim] → [count, heads, n, dim]
        shape = (count, group.queries, spec.num_heads, spec.head_dim)
        kv_shape = (count, group.keys, spec.num_kv_heads, spec.head_dim)
        result = _attend(
            q[queries].view(shape).transpose(1, 2),
            k[keys].view(kv_shape).transpose(1, 2),
            v[keys].view(kv_shape).transpose(1, 2),
            spec,
            _added(spec, terms, group, keys, q),
        )
        out[queries] = result.transpose(1, 2).reshape(count * group.queries, spec.q_size)
    return out


@cache
def _torch_varlen() -> Callable[..., Tensor] | None:
    """torch's attention over packed sequences, None in versions before it."""
    try:
        module = import_module("torch.nn.attention.varlen")
    except ImportError:
        return None
    found: Callable[..., Tensor] = module.varlen_attn
    return found


def _fits_flash(q: Tensor, spec: AttentionSpec, terms: AttentionTerms) -> bool:
    """Whether torch's packed attention takes this: GPU, 16 bits, nothing added to the logits."""
    if not q.is_cuda or q.dtype == torch.float32 or spec.softcap or not terms.is_empty:
        return False
    return spec.head_dim % 8 == 0 and spec.head_dim <= 256 and _torch_varlen() is not None


def _flash(
    q: Tensor, k: Tensor, v: Tensor, lengths: Lengths, spec: AttentionSpec, keys: Lengths
) -> Tensor:
    """One call for the pack; it counts positions from the end, as `AttentionSpec` does."""
    run = _torch_varlen()
    assert run is not None, "_fits_flash was not asked: this is a bug"
    left, right = spec.window
    out = run(
        q.view(-1, spec.num_heads, spec.head_dim),
        k.view(-1, spec.num_kv_heads, spec.head_dim),
        v.view(-1, spec.num_kv_heads, spec.head_dim),
        lengths.cu_seqlens,
        keys.cu_seqlens,
        max(lengths.seq_lens),
        max(keys.seq_lens),
        scale=spec.scale,
        window_size=(left, 0 if spec.causal else right),
        enable_gqa=spec.num_heads != spec.num_kv_heads,
    )
    return out.flatten(1)


def _added(
    spec: AttentionSpec,
    terms: AttentionTerms,
    group: Group,
    keys: Tensor | slice,
    q: Tensor,
) -> Tensor | None:
    """What is added to a group's logits, broadcastable to `[count, heads, queries, keys]`."""
    if spec.is_plain and terms.is_empty:
        return None
    key_at = torch.arange(group.keys, device=q.device)
    query_at = torch.arange(group.queries, device=q.device) + (group.keys - group.queries)
    distance = key_at[None, :] - query_at[:, None]  # how far after the query the key stands
    left, right = spec.window
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if left >= 0:
        hidden |= distance < -left
    if right >= 0:
        hidden |= distance > right
    if spec.causal:
        hidden |= distance > 0
    added = torch.zeros(distance.shape, device=q.device).masked_fill_(hidden, float("-inf"))
    added = added[None, None]
    if terms.bias is not None:
        at = slice(group.keys - group.queries, group.keys)
        added = added + terms.bias[None, :, at, : group.keys]
    if terms.alibi_slopes is not None:
        added = added - terms.alibi_slopes[None, :, None, None] * distance.abs()
    if terms.key_mask is not None:
        masked = terms.key_mask[keys].view(len(group.key_starts), 1, 1, group.keys) == 0
        added = added.expand(masked.shape[0], -1, -1, -1).masked_fill(masked, float("-inf"))
    return added


def _attend(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, added: Tensor | None) -> Tensor:
    """One group: q `[count, heads, n, dim]`, k and v `[count, kv_heads, m, dim]`."""
    grouped = spec.num_heads != spec.num_kv_heads
    if added is None:
        return F.scaled_dot_product_attention(q, k, v, scale=spec.scale, enable_gqa=grouped)
    if grouped:
        k = k.repeat_interleave(spec.num_heads // spec.num_kv_heads, dim=1)
        v = v.repeat_interleave(spec.num_heads // spec.num_kv_heads, dim=1)
    # In float32 throughout: on CPUs 16-bit products would make oneDNN keep a program per shape.
    logits = (q.float() @ k.float().transpose(-1, -2)) * spec.scale
    if spec.softcap:
        logits = spec.softcap * torch.tanh(logits / spec.softcap)
    # A row of minus infinities has no softmax; by contract it gives zeros.
    weights = torch.softmax(logits + added, dim=-1).nan_to_num_(0.0)
    return (weights @ v.float()).to(q.dtype)
