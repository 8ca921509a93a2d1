"""Every operation against its definition written out in float64, on both implementations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from cenote.errors import InvalidRequest, ModelLoadError
from cenote.kernels import backend
from cenote.kernels.activation import FUNCTIONS, NATIVE_CODES, activate
from cenote.kernels.attention import AttentionSpec, AttentionTerms, attention, attention_torch
from cenote.kernels.embedding import EmbeddingTables, embed
from cenote.kernels.linear import LinearWeight, _ladder, gated, linear, mlp
from cenote.kernels.maxsim import best_matches, maxsim
from cenote.kernels.norm import NormWeight, norm
from cenote.kernels.pooling import normalize, pool
from cenote.kernels.rotary import rotary_tables, rotate
from cenote.layers.frequencies import plain

CPU = torch.device("cpu")
LENS = [1, 5, 5, 17, 3, 5]


@dataclass
class Layout:
    cu_seqlens: Tensor
    seq_lens: list[int]


@pytest.fixture(autouse=True)
def configured(kernels: str) -> Iterator[None]:
    backend.configure(kernels, CPU, torch.float32)  # type: ignore[arg-type]
    torch.manual_seed(0)
    yield
    backend.configure("torch", CPU, torch.float32)


def layout(lens: list[int]) -> Layout:
    return Layout(torch.tensor([0, *lens]).cumsum(0).int(), lens)


def parts(x: Tensor, lens: list[int]) -> list[Tensor]:
    return list(x.double().split(lens))


def naive_attention(
    q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, terms: AttentionTerms, mask: Tensor
) -> Tensor:
    """One sequence, every head and query written out."""
    queries, keys = q.shape[0], k.shape[0]
    out = torch.zeros(queries, spec.num_heads, spec.head_dim, dtype=torch.float64)
    q = q.view(queries, spec.num_heads, -1)
    k, v = k.view(keys, spec.num_kv_heads, -1), v.view(keys, spec.num_kv_heads, -1)
    for head in range(spec.num_heads):
        own = head // (spec.num_heads // spec.num_kv_heads)
        for i in range(queries):
            at = keys - queries + i
            logits = k[:, own] @ q[i, head] * spec.scale
            if spec.softcap:
                logits = spec.softcap * torch.tanh(logits / spec.softcap)
            for j in range(keys):
                if terms.bias is not None:
                    logits[j] += terms.bias[head, at, j]
                if terms.alibi_slopes is not None:
                    logits[j] -= terms.alibi_slopes[head] * abs(at - j)
                left, right = spec.window
                hidden = (left >= 0 and j < at - left) or (right >= 0 and j > at + right)
                if hidden or (spec.causal and j > at) or not mask[j]:
                    logits[j] = -math.inf
            if logits.max() > -math.inf:
                out[i, head] = torch.softmax(logits, 0) @ v[:, own]
    return out.flatten(1)


SPECS = {
    "plain": AttentionSpec(4, 4, 8, 0.3),
    "causal": AttentionSpec(4, 4, 8, 0.3, causal=True),
    "window": AttentionSpec(4, 4, 8, 0.3, window=(2, 1)),
    "left window": AttentionSpec(4, 4, 8, 0.3, window=(3, -1), causal=True),
    "softcap": AttentionSpec(4, 4, 8, 2.0, softcap=1.5),
    "grouped": AttentionSpec(4, 2, 8, 0.3),
    "grouped causal": AttentionSpec(4, 1, 16, 0.3, causal=True),
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("extra", ["none", "alibi", "bias", "mask"])
def test_attention_is_its_definition(name: str, extra: str) -> None:
    spec, lengths = SPECS[name], layout(LENS)
    fused = torch.randn(sum(LENS), spec.q_size + 2 * spec.kv_size)
    q, k, v = fused.split([spec.q_size, spec.kv_size, spec.kv_size], dim=1)
    mask = torch.ones(sum(LENS), dtype=torch.uint8)
    if extra == "mask":
        mask = (torch.rand(sum(LENS)) > 0.4).to(torch.uint8)
        mask[1:6] = 0  # a whole sequence is hidden: its rows are zeros
    terms = AttentionTerms(
        alibi_slopes=torch.tensor([0.5, 0.25, 0.125, 1.0]) if extra == "alibi" else None,
        bias=torch.randn(4, 20, 20) if extra == "bias" else None,
        key_mask=mask if extra == "mask" else None,
    )
    out = attention(q, k, v, lengths, spec, terms)
    split = zip(*(parts(x, LENS) for x in (q, k, v)), mask.split(LENS), strict=True)
    expected = [naive_attention(a, b, c, spec, terms, m) for a, b, c, m in split]
    torch.testing.assert_close(out.double(), torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_attention_over_keys_of_another_length() -> None:
    spec, key_lens = SPECS["causal"], [4, 5, 9, 17, 3, 6]
    q, k, v = torch.randn(sum(LENS), 32), *torch.randn(2, sum(key_lens), 32)
    out = attention(q, k, v, layout(LENS), spec, key_lengths=layout(key_lens))
    split = zip(parts(q, LENS), parts(k, key_lens), parts(v, key_lens), strict=True)
    everything = torch.ones(20)
    expected = [naive_attention(a, b, c, spec, AttentionTerms(), everything) for a, b, c in split]
    torch.testing.assert_close(out.double(), torch.cat(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", sorted(set(SPECS) - {"softcap"}))
def test_attention_on_a_gpu_is_its_definition(name: str) -> None:
    spec, lengths = SPECS[name], layout(LENS)
    sizes = [spec.q_size, spec.kv_size, spec.kv_size]
    fused = torch.randn(sum(LENS), sum(sizes)).bfloat16()
    there = Layout(lengths.cu_seqlens.cuda(), LENS)
    out = attention_torch(*fused.cuda().split(sizes, dim=1), there, spec)
    everything = torch.ones(max(LENS))
    split = zip(*(parts(x, LENS) for x in fused.split(sizes, dim=1)), strict=True)
    expected = [naive_attention(a, b, c, spec, AttentionTerms(), everything) for a, b, c in split]
    torch.testing.assert_close(out.cpu().double(), torch.cat(expected), atol=2e-2, rtol=2e-2)


def norm_weight(kind: str, size: int) -> NormWeight:
    bias = torch.randn(size) if kind == "layer" else None
    return NormWeight.prepare(kind, torch.rand(size) + 0.5, bias, 1e-6)  # type: ignore[arg-type]


def naive_norm(x: Tensor, weight: NormWeight) -> Tensor:
    if weight.kind == "rms":
        return x / (x.square().mean(-1, keepdim=True) + weight.eps).sqrt() * weight.weight
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + weight.eps).sqrt()
    assert weight.bias is not None
    return scaled * weight.weight + weight.bias


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_are_their_definition(kind: str) -> None:
    x, residual, weight = torch.randn(7, 48), torch.randn(7, 48), norm_weight(kind, 48)
    expected = naive_norm((x + residual).double(), weight)
    torch.testing.assert_close(
        norm(x, weight, residual=residual).double(), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("activation", sorted(FUNCTIONS))
@pytest.mark.parametrize("fused", [False, True])
def test_a_product_with_all_that_is_fused_to_it(activation: str, fused: bool) -> None:
    x, matrix, bias = torch.randn(9, 32), torch.randn(48, 32) / 6, torch.randn(48)
    weight = LinearWeight.prepare(matrix, bias, torch.float32)
    before, after = norm_weight("layer", 32), norm_weight("rms", 48)
    residual = torch.randn(9, 48)
    wide = x.double()
    if fused:
        wide = naive_norm(wide, before)
    expected = activate(activation, wide @ matrix.double().T + bias)
    if fused:
        expected = naive_norm(expected + residual, after)
    out = linear(
        x,
        weight,
        pre_norm=before if fused else None,
        activation=activation,
        residual=residual if fused else None,
        post_norm=after if fused else None,
    )
    torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("gate", ["none", "first", "second"])
@pytest.mark.parametrize("activation", ["gelu_erf", "silu", "mish"])
def test_an_mlp_is_its_two_products(gate: str, activation: str) -> None:
    width = 40 if gate == "none" else 80
    x, residual = torch.randn(11, 32), torch.randn(11, 32)
    up, down = torch.randn(width, 32) / 6, torch.randn(32, 40) / 6
    after = norm_weight("layer", 32)
    halves = gate != "none" and activation in NATIVE_CODES
    out = mlp(
        x,
        LinearWeight.prepare(up, None, torch.float32, halves=halves),
        LinearWeight.prepare(down, None, torch.float32),
        activation=activation,
        gate=gate,  # type: ignore[arg-type]
        residual=residual,
        post_norm=after,
    )
    hidden = gated(x.double() @ up.double().T, activation, gate)  # type: ignore[arg-type]
    expected = naive_norm(hidden @ down.double().T + residual, after)
    torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=1e-5)


def test_a_bfloat16_product_is_close_and_keeps_to_its_rows() -> None:
    x, matrix = torch.randn(37, 64), torch.randn(48, 64) / 8
    weight = LinearWeight.prepare(matrix.bfloat16(), None, torch.bfloat16)
    out = linear(x, weight, out_dtype=torch.float32)
    assert (out - x @ matrix.T).abs().max() < 0.05
    assert linear(x, weight).dtype == torch.bfloat16
    assert linear(x[:0], weight).shape == (0, 48)


def test_row_counts_are_padded_to_few_sizes_and_little_waste() -> None:
    sizes = {rows: _ladder(rows) for rows in range(1, 8193)}
    assert all(rows <= size <= rows * 1.125 + 1 for rows, size in sizes.items())
    assert len(set(sizes.values())) < 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embeddings_are_summed_scaled_and_normed(dtype: torch.dtype) -> None:
    words, positions, types = (torch.randn(n, 32).to(dtype) for n in (50, 12, 2))
    tables = EmbeddingTables(words, positions, types, norm_weight("layer", 32), scale=2.0)
    ids, at = torch.tensor([3, 49, 0, 7]).int(), torch.tensor([0, 1, 2, 11]).int()
    kinds = torch.tensor([0, 1, 1, 0]).int()
    raw = 2 * words[ids].double() + positions[at].double()
    for given, used in ((kinds, kinds), (None, torch.zeros(4).int())):
        expected = naive_norm(raw + types[used].double(), tables.norm)  # type: ignore[arg-type]
        found = embed(ids, at, given, tables).double()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    plain = embed(ids, at, None, EmbeddingTables(words))
    torch.testing.assert_close(plain, words[ids].float())


@pytest.mark.parametrize(("token", "position"), [(50, 0), (-1, 0), (0, 12), (2**30, 0)])
def test_no_embedding_is_read_outside_its_table(token: int, position: int) -> None:
    tables = EmbeddingTables(torch.randn(50, 32), torch.randn(12, 32))
    with pytest.raises(InvalidRequest, match="outside"):
        embed(torch.tensor([token]).int(), torch.tensor([position]).int(), None, tables)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_turns_pairs_in_place(interleaved: bool) -> None:
    cos, sin = rotary_tables(plain(10000.0, 8), 20)
    fused = torch.randn(5, 3 * 16 + 4)
    before, x = fused.clone(), fused[:, :48]
    positions = torch.tensor([0, 1, 2, 7, 19]).int()
    rotate(x, positions, cos, sin, head_dim=16, interleaved=interleaved)
    assert torch.equal(fused[:, 48:], before[:, 48:])
    assert torch.equal(fused[0], before[0])
    for row, position in enumerate(positions.tolist()):
        for head in range(3):
            for pair in range(4):
                i, j = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 4)
                angle = position * 10000.0 ** (-2 * pair / 8)
                a, b = before[row, head * 16 + i].item(), before[row, head * 16 + j].item()
                turned = a * math.cos(angle) - b * math.sin(angle)
                assert fused[row, head * 16 + i].item() == pytest.approx(turned, abs=1e-5)
    with pytest.raises(InvalidRequest):
        rotate(x, positions + 1, cos, sin, head_dim=16, interleaved=interleaved)


@pytest.mark.parametrize("skipped", [None, [0, 2, 9, 4, 1, 3]])
def test_pooling_is_its_definition(skipped: list[int] | None) -> None:
    hidden, lengths = torch.randn(sum(LENS), 24), layout(LENS)
    skip = None if skipped is None else torch.tensor(skipped).int()
    for index, rows in enumerate(parts(hidden, LENS)):
        # At least the last row stays, however long the prompt.
        start = 0 if skipped is None else min(skipped[index], len(rows) - 1)
        kept, place = rows[start:], torch.arange(start + 1, len(rows) + 1).double()
        expected = {
            "cls": kept[0],
            "last": rows[-1],
            "mean": kept.mean(0),
            "max": kept.amax(0),
            "mean_sqrt_len": kept.sum(0) / math.sqrt(len(kept)),
            "weightedmean": (kept * place[:, None]).sum(0) / place.sum(),
        }
        for mode, vector in expected.items():
            found = pool(hidden, lengths.cu_seqlens, mode, skip=skip)  # type: ignore[arg-type]
            torch.testing.assert_close(found[index].double(), vector, atol=1e-6, rtol=1e-5)


def test_normalising_survives_a_zero_row() -> None:
    x = torch.randn(3, 24)
    x[1] = 0
    lengths = normalize(x).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1.0, 0.0, 1.0]))


def test_maxsim_is_the_sum_of_best_products() -> None:
    query, documents = torch.randn(6, 16), torch.randn(sum(LENS), 16)
    cu_seqlens = torch.tensor([0, 0, *LENS]).cumsum(0).int()  # the first document has no rows
    scores = maxsim(query, documents, cu_seqlens)
    matches = best_matches(query, documents, cu_seqlens)
    torch.testing.assert_close(scores, matches.scores)
    assert scores[0] == 0
    assert (matches.rows[0] == -1).all()
    for index, rows in enumerate(parts(documents, LENS), start=1):
        best, at = (query.double() @ rows.T).max(dim=1)
        torch.testing.assert_close(scores[index].double(), best.sum(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(matches.similarities[index].double(), best, atol=1e-5, rtol=1e-5)
        assert matches.rows[index].tolist() == at.tolist()


def test_the_choice_of_kernels_is_told_and_refused_where_it_cannot_be(kernels: str) -> None:
    assert backend.describe().startswith(kernels)
    if kernels == "native":
        module = backend.compiled()
        codes = {("identity" if k == "none" else k): v for k, v in module.ACTIVATIONS.items()}
        assert codes == NATIVE_CODES
        with pytest.raises(ModelLoadError, match="float16"):
            backend.configure("native", CPU, torch.float16)
    with pytest.raises(ModelLoadError, match="run on CPUs"):
        backend.configure("native", torch.device("cuda"), torch.bfloat16)
    backend.configure("auto", torch.device("cuda"), torch.bfloat16)
    assert "cuda" in backend.describe()
