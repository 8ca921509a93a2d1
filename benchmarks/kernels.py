"""Our fused products against oneDNN (through torch), and their share of the register-only peak.

    python benchmarks/kernels.py [--kinds bf16,int8,f32] [--rows 16,256,1024,4096] [--rounds 15]

Candidates take turns within a round; a ratio is the median over rounds of (torch's time / ours) in
the same round, so a busy machine slows both sides. Rates are the best of all rounds, and the peak
the best of many short windows measured between the rounds. The last line is JSON.

torch gets what is quickest for it: inputs already in the dtype, weights as they are. Ours starts
from the float32 residual stream, and does the bias, activation, residual and norm on the way.
int8 is compared with torch's bfloat16. With --threads 1 the clock is the thread's own CPU time,
which neighbours on a busy machine can't stretch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cenote import _native

Call = Callable[[], object]
TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}
LINEARS = [(384, 1152), (384, 384), (768, 2304), (768, 768)]
MLPS = [(384, 1536), (768, 3072)]
# Long enough for a clock, short enough that both sides of a round meet the same neighbours.
WINDOW_SECONDS = 0.006
# libgomp's workers spin for some milliseconds after torch's last call and would sit on our cores.
PAUSE_SECONDS = 0.004


@dataclass
class Row:
    operation: str
    kind: str
    rows: int
    ours_gflops: float
    torch_gflops: float
    ratio: float
    share_of_peak: float = 0.0


def clock() -> float:
    return time.thread_time() if _native.num_threads() == 1 else time.perf_counter()


def window(call: Call, repeats: int) -> float:
    """Seconds of one call, from a run of several after an untimed one."""
    time.sleep(PAUSE_SECONDS)
    call()
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def repeats_for(call: Call) -> int:
    call()
    return max(1, int(WINDOW_SECONDS / max(window(call, 1), 1e-7)))


class Peak:
    """The best rate seen on registers alone."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def sample(self, kind: str) -> None:
        for _ in range(5):
            self.best[kind] = max(self.best.get(kind, 0.0), _native.peak(kind, 0.002))


def compare(
    name: str, kind: str, rows: int, work: float, ours: Call, theirs: Call, rounds: int, peak: Peak
) -> Row:
    our_repeats, their_repeats = repeats_for(ours), repeats_for(theirs)
    pairs = []
    for round_number in range(rounds):
        if round_number % 2:
            b, a = window(theirs, their_repeats), window(ours, our_repeats)
        else:
            a, b = window(ours, our_repeats), window(theirs, their_repeats)
        pairs.append((a, b))
        peak.sample(kind)
    return Row(
        operation=name,
        kind=kind,
        rows=rows,
        ours_gflops=work / min(a for a, _ in pairs) / 1e9,
        torch_gflops=work / min(b for _, b in pairs) / 1e9,
        ratio=statistics.median(b / a for a, b in pairs),
    )


def pack(w: Tensor, bias: Tensor, kind: str) -> _native.PackedWeight:
    outputs, features = w.shape
    return _native.PackedWeight(w.data_ptr(), _native.F32, outputs, features, bias.data_ptr(), kind)


def linear_row(shape: tuple[int, int], kind: str, rows: int, rounds: int, peak: Peak) -> Row:
    features, outputs = shape
    dtype = TORCH_DTYPES[kind]
    w, bias, x = torch.randn(outputs, features), torch.randn(outputs), torch.randn(rows, features)
    weight = pack(w, bias, kind)
    out = torch.empty(rows, outputs, dtype=dtype)
    code = _native.F32 if dtype == torch.float32 else _native.BF16
    arguments = (x.data_ptr(), _native.F32, rows, weight, out.data_ptr(), code)
    x_cast, w_cast, bias_cast = x.to(dtype), w.to(dtype), bias.to(dtype)
    return compare(
        f"linear {features}→{outputs}",
        kind,
        rows,
        2.0 * rows * features * outputs,
        lambda: _native.linear(*arguments),
        lambda: functional.linear(x_cast, w_cast, bias_cast),
        rounds,
        peak,
    )


def mlp_row(shape: tuple[int, int], kind: str, rows: int, rounds: int, peak: Peak) -> Row:
    features, wide = shape
    dtype = TORCH_DTYPES[kind]
    w1, w2 = torch.randn(wide, features) / features**0.5, torch.randn(features, wide) / wide**0.5
    b1, b2, x = torch.randn(wide), torch.randn(features), torch.randn(rows, features)
    gamma, beta, out = torch.ones(features), torch.zeros(features), torch.empty(rows, features)
    norm = _native.Norm("layer", gamma.data_ptr(), beta.data_ptr(), features, 1e-12)
    up, down = pack(w1, b1, kind), pack(w2, b2, kind)
    gelu = _native.ACTIVATIONS["gelu_erf"]
    arguments = (x.data_ptr(), 0, rows, up, down, out.data_ptr(), 0, gelu, 0, None)
    x_cast, w1_cast, b1_cast, w2_cast, b2_cast = (t.to(dtype) for t in (x, w1, b1, w2, b2))

    def theirs() -> Tensor:
        inner = functional.gelu(functional.linear(x_cast, w1_cast, b1_cast))
        y = functional.linear(inner, w2_cast, b2_cast)
        return functional.layer_norm(y + x, (features,), gamma, beta)

    return compare(
        f"mlp {features}→{wide}→{features}",
        kind,
        rows,
        4.0 * rows * features * wide,
        lambda: _native.mlp(*arguments, x.data_ptr(), norm),
        theirs,
        rounds,
        peak,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kinds", default="bf16,int8,f32")
    parser.add_argument("--rows", default="16,256,1024,4096")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=_native.num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    _native.set_num_threads(args.threads)

    peak = Peak()
    results = []
    for kind in args.kinds.split(","):
        for rows in map(int, args.rows.split(",")):
            results += [linear_row(shape, kind, rows, args.rounds, peak) for shape in LINEARS]
            results += [mlp_row(shape, kind, rows, args.rounds, peak) for shape in MLPS]

    print(f"level {_native.isa()}, {args.threads} threads")
    print(f"{'':24} {'kind':5} {'rows':>5} {'ours':>7} {'torch':>7} {'ratio':>6} {'of peak':>8}")
    for row in results:
        row.share_of_peak = row.ours_gflops * 1e9 / peak.best[row.kind]
        print(
            f"{row.operation:24} {row.kind:5} {row.rows:5d} {row.ours_gflops:7.0f} "
            f"{row.torch_gflops:7.0f} {row.ratio:6.2f} {row.share_of_peak:8.0%}"
        )
    print(
        json.dumps(
            {
                "isa": _native.isa(),
                "threads": args.threads,
                "peak_gflops": {kind: round(rate / 1e9) for kind, rate in peak.best.items()},
                "results": [asdict(row) for row in results],
            }
        )
    )


if __name__ == "__main__":
    main()
