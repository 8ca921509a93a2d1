"""The C++ kernels' binding: addresses and sizes in, nothing out; the caller owns every buffer.

Addresses come from `tensor.data_ptr()`; all tensors are contiguous unless a stride is given.
Dtypes are codes: F32 = 0, BF16 = 1. Every call releases the GIL.
"""

from typing import Final

F32: Final[int]
BF16: Final[int]

ACTIVATIONS: Final[dict[str, int]]
"""none, relu, gelu_erf, gelu_tanh, silu, tanh, quick_gelu → code."""

# --- levels and threads -------------------------------------------------------------------------

def isa() -> str:
    """Level in use: generic, avx2, avx512, avx512_vnni, avx512_bf16, amx (or amx_emulated)."""

def isa_report() -> str:
    """One line per level: chosen or passed over, and why (not built, no such processor, wrong)."""

def isa_levels() -> list[str]:
    """Levels that are built and can run here, best first; amx_emulated last."""

def set_isa(name: str) -> None:
    """Use another level from now on. A PackedWeight keeps its own level. For tests."""

def set_num_threads(count: int) -> None: ...
def num_threads() -> int: ...
def set_alone(alone: bool) -> None:
    """Whether the kernels that this thread calls use no other threads from now on."""

def hold_alone(hold: bool) -> None:
    """Threads that compute alone wait at their next gate, between two kernels of a `LayerStack`,
    until everybody who held them (True) has let go (False), but for some milliseconds at most."""

def pass_gate() -> None:
    """A gate for what is no `LayerStack`."""

def peak(kind: str, seconds: float = 0.2) -> float:
    """Operations a second of the level's product instructions on registers alone, all threads."""

def copy_rows(
    source: int,
    source_stride: int,
    target: int,
    target_stride: int,
    count: int,
    row_bytes: int,
    *,
    source_rows: int = 0,
    source_count: int = 0,
    target_rows: int = 0,
    target_count: int = 0,
) -> None:
    """target[target_rows[i]] = source[source_rows[i]] for i below `count`: `row_bytes` of each row.

    Strides are in bytes; the rows of either side are int64, or 0: 0, 1, 2 … No target row may occur
    twice. A row outside its table raises IndexError and copies nothing.
    """

# --- products -----------------------------------------------------------------------------------

class PackedWeight:
    """A copy of a row-major `[out, in]` matrix in the order that the current level's kernels read.

    `kind` is "f32", "bf16" or "int8" (symmetric, per output channel). `bias`, if not 0, is the
    address of float32 `[out]`. `halves=True` is for the `up` matrix of a gated MLP: each half of
    the outputs is padded on its own.
    """

    def __init__(
        self,
        weight: int,
        dtype: int,
        out_features: int,
        in_features: int,
        bias: int = 0,
        kind: str = "bf16",
        halves: bool = False,
    ) -> None: ...
    @property
    def out_features(self) -> int: ...
    @property
    def in_features(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

class Norm:
    """A copy of a norm's float32 parameters. `kind` is "layer" or "rms"; `bias` may be 0."""

    def __init__(self, kind: str, weight: int, bias: int, size: int, eps: float) -> None: ...
    @property
    def size(self) -> int: ...

def linear(
    x: int,
    x_dtype: int,
    rows: int,
    weight: PackedWeight,
    out: int,
    out_dtype: int,
    activation: int = 0,
    pre_norm: Norm | None = None,
    residual: int = 0,
    post_norm: Norm | None = None,
    x_stride: int = 0,
) -> None:
    """out = post_norm(act(pre_norm(x) @ W.T + b) + residual).

    x is `[rows, in]` with rows `x_stride` elements apart (0: contiguous); out is `[rows, out]`;
    residual is float32 `[rows, out]`. A row's result doesn't depend on the other rows.

    out may be residual itself, and may be x itself where in = out, x is contiguous and the dtypes
    are equal; any other overlap is an error of the caller.
    """

def mlp(
    x: int,
    x_dtype: int,
    rows: int,
    up: PackedWeight,
    down: PackedWeight,
    out: int,
    out_dtype: int,
    activation: int,
    gated: int = 0,
    pre_norm: Norm | None = None,
    residual: int = 0,
    post_norm: Norm | None = None,
    x_stride: int = 0,
) -> None:
    """out = post_norm(down(act(up(pre_norm(x)))) + residual); aliasing as for `linear`.

    gated=1: act(first half of up) * second half; gated=2: first half * act(second half). Then `up`
    must be packed with halves=True. Both weights must be packed for the same level and kind.
    """

# --- whole layers -------------------------------------------------------------------------------

class LayerStack:
    """Layers that run one after another in one call: a few sequences at a time go through all of
    them, each such group on one thread; what doesn't come out even shares all threads.

    `width` is that of a row, `dtype` is of what lies between two products.
    """

    def __init__(self, width: int, dtype: int) -> None: ...
    def add(
        self,
        qkv: PackedWeight,
        out: PackedWeight,
        up: PackedWeight,
        down: PackedWeight,
        *,
        attention_pre: Norm | None = None,
        attention_post: Norm | None = None,
        mlp_pre: Norm | None = None,
        mlp_post: Norm | None = None,
        adds_behind: bool = False,
        query_norm: Norm | None = None,
        key_norm: Norm | None = None,
        activation: int,
        gated: int = 0,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        causal: bool = False,
        window_left: int = -1,
        window_right: int = -1,
        softcap: float = 0.0,
        rotary_dim: int = 0,
        cos: int = 0,
        sin: int = 0,
        max_positions: int = 0,
        interleaved: bool = False,
        kept: int = -1,
    ) -> None:
        """The next layer: x' = attention_post(out(attention(qkv(attention_pre(x)))) + x), then
        mlp_post(mlp(mlp_pre(x')) + x'), or with `adds_behind` x and x' added to what the two
        post-norms give. `qkv` gives queries, keys and values in this order. The first two are
        normed head by head, if there are such norms, and turned by cos and sin (see `rotary`) if
        these aren't 0, which must outlive the stack. `kept`: which layer of what `run` keeps is
        this one's; -1: none."""

    def run(
        self,
        hidden: int,
        cu_seqlens: int,
        sequences: int,
        *,
        positions: int = 0,
        alibi_slopes: int = 0,
        bias: int = 0,
        bias_size: int = 0,
        key_mask: int = 0,
        kept: int = 0,
        kept_layers: int = 0,
        kept_slots: int = 0,
        kept_width: int = 0,
        written: int = 0,
        key_slots: int = 0,
        key_cu_seqlens: int = 0,
        joined: int = 0,
        read_rows: int = 0,
        read_cu_seqlens: int = 0,
        read_trailing: bool = False,
        out: int = 0,
    ) -> None:
        """All layers on hidden, float32 `[tokens, width]`, in place.

        What may be added to logits is as for `attention`, the same for all layers. With
        `read_rows`, int64 in ascending order, the last layer makes only those, side by side in
        `out`; `read_cu_seqlens` bounds each sequence's, and `read_trailing` says that they are its
        last ones.

        With `kept`, the stack's dtype `[kept_layers, kept_slots, kept_width]`, keys and values
        side by side are put into the slots `written`, int64 `[tokens]`. With `key_slots`, int64, a
        sequence attends to what lies there, bounded by `key_cu_seqlens`; `joined`, uint8
        `[sequences]`, marks those that must run together with the one before them.

        IndexError for a position outside a layer's table, a row outside its sequence, or a slot
        that isn't there.
        """

# --- varlen kernels: one call for the whole pack -----------------------------------------------
#
# `cu_seqlens` is int32 [sequences + 1]; ids and positions are int32; strides are in elements, from
# one token's row to the next. A 0 for an optional address means "not given". What a sequence gets
# doesn't depend, bit for bit, on what else is in the pack or on the number of threads.

def attention(
    q: int,
    k: int,
    v: int,
    out: int,
    dtype: int,
    q_stride: int,
    k_stride: int,
    v_stride: int,
    out_stride: int,
    cu_seqlens: int,
    sequences: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    *,
    cu_seqlens_k: int = 0,
    causal: bool = False,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: int = 0,
    bias: int = 0,
    bias_size: int = 0,
    key_mask: int = 0,
    distance_keys: int = 0,
    distance_queries: int = 0,
    distance_count: int = 0,
    distance_rows: int = 0,
    distance_size: int = 0,
) -> None:
    """softmax(scale · q·kᵀ + …)·v per sequence and head, softmax in float32.

    Head h of a token starts at column h · head_dim of its row, so q, k and v may be slices of one
    fused projection, and `out` may be q. Query head h reads key head h / (heads / kv_heads).
    head_dim: a multiple of 8 up to 256; scale: above 0. `cu_seqlens_k`: keys of their own (same as
    the queries' if 0); query i of n stands at position keys - n + i. Visible are the keys within
    `window_left` before and `window_right` after that position (-1: no limit), none after it if
    `causal`, and none whose byte in `key_mask` (uint8 per packed key) is 0; a row that sees nothing
    is 0.
    Logits: softcap · tanh(x / softcap) first, then + bias[h, i, j] (float32 [heads, bias_size,
    bias_size], positions within the sequence), then - alibi_slopes[h] · |i - j|.

    With a `distance_size`, q·kᵀ is q·k + q·distance_keys[r] + k·distance_queries[r], where r is the
    entry for i - j of `distance_rows` (int32 [2 · distance_size - 1], from 1 - distance_size up).
    Either table ([distance_count, heads · head_dim], of `dtype`) may be left out. heads = kv_heads.
    """

def layer_norm(
    x: int,
    x_dtype: int,
    rows: int,
    columns: int,
    weight: int,
    bias: int,
    eps: float,
    *,
    residual: int = 0,
    sum_out: int = 0,
    out_f32: int = 0,
    out_bf16: int = 0,
) -> None:
    """LayerNorm of x + residual (float32). The sum (to `sum_out`) and the result in either or both
    dtypes; every output may be x or the residual itself if its dtype is the same. weight and bias
    (float32) may be 0."""

def rms_norm(
    x: int,
    x_dtype: int,
    rows: int,
    columns: int,
    weight: int,
    eps: float,
    *,
    residual: int = 0,
    sum_out: int = 0,
    out_f32: int = 0,
    out_bf16: int = 0,
) -> None: ...
def head_norm(
    kind: str,
    x: int,
    dtype: int,
    row_stride: int,
    rows: int,
    heads: int,
    head_dim: int,
    weight: int,
    bias: int,
    eps: float,
) -> None:
    """Norms every head's slice of every row in place (kind: layer or rms; weight [head_dim])."""

def embedding(
    ids: int,
    tokens: int,
    hidden: int,
    dtype: int,
    words: int,
    vocab_size: int,
    *,
    position_table: int = 0,
    max_positions: int = 0,
    positions: int = 0,
    type_table: int = 0,
    type_count: int = 0,
    types: int = 0,
    scale: float = 1.0,
    norm: str = "none",
    norm_weight: int = 0,
    norm_bias: int = 0,
    eps: float = 0.0,
    out_f32: int = 0,
    out_bf16: int = 0,
) -> None:
    """norm(scale · words[id] + position_table[position] + type_table[type]), tables of `dtype`.

    norm: none, layer or rms. `types` 0 with a type table: type 0 throughout. An index outside its
    table raises IndexError.
    """

def rotary(
    x: int,
    dtype: int,
    row_stride: int,
    tokens: int,
    heads: int,
    head_dim: int,
    rotary_dim: int,
    cos: int,
    sin: int,
    max_positions: int,
    positions: int,
    interleaved: bool = False,
) -> None:
    """Rotates the first rotary_dim columns of each head in place; q and k heads that lie side by
    side are one call. cos, sin: float32 [max_positions, rotary_dim / 2]. Pairs are (i, i +
    rotary_dim / 2), or (2i, 2i + 1) if interleaved."""

def pool(
    method: str,
    x: int,
    dtype: int,
    row_stride: int,
    hidden: int,
    cu_seqlens: int,
    sequences: int,
    out: int,
    *,
    skip: int = 0,
    normalize: bool = False,
) -> None:
    """cls, last, mean, max, mean_sqrt_len or weighted_mean → float32 [sequences, hidden].

    `skip` (int32 per sequence) leaves out leading tokens (a prompt), except for cls and last;
    weighted_mean's weights are positions from 1 in the whole sequence. Nothing to pool gives 0.
    """

def l2_normalize(x: int, out: int, rows: int, columns: int) -> None:
    """x / max(‖x‖, 1e-12) per float32 row; may be in place."""

def maxsim(
    queries: int,
    cu_queries: int,
    query_count: int,
    documents: int,
    cu_documents: int,
    ranges: int,
    dim: int,
    dtype: int,
    scores: int,
    *,
    best_row: int = 0,
    best_score: int = 0,
) -> None:
    """Σ over query tokens of the largest dot product with a document's token, in float32.

    Query i is compared with the documents ranges[i, 0] … ranges[i, 1] - 1 (int32 [query_count, 2]);
    `scores` holds the results query by query. With `best_row` (int32, the row within the document)
    and `best_score` (float32), also the best match of every query token: for each (query, document)
    in the order of `scores`, one entry per query token. dim: even for BF16. An empty document
    scores 0 (best_row -1).
    """
