"""Layers in one call: the same, bit for bit, as module by module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from native_kernels import VARLEN_LEVELS, at_level, native
from torch import Tensor, nn

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.config.rope import RopeConfig
from cenote.errors import InvalidRequest
from cenote.kernels import backend
from cenote.kernels.attention import NO_TERMS, AttentionSpec, AttentionTerms
from cenote.layers.kv import KVShape
from cenote.layers.norm import RMSNorm
from cenote.layers.packed import PackedBatch, ReadRows
from cenote.layers.packing import WeightForm, pack_weights
from cenote.layers.rotary import Rotary
from cenote.layers.run_layers import RunLayers
from cenote.models.blocks import PostNormLayer, PreNormLayer, SandwichLayer, bidirectional, causal
from cenote.models.jina_bert import JinaBertLayer
from cenote.params import PoolingParams
from cenote.runner.kv_memory import KVMemory
from cenote.step import KVSpace, ScheduledRequest

CPU = torch.device("cpu")
# More rows than a group has, one sequence with more than that alone, and some of a single token.
LENS = [1, 9, 300, 40, 17, 1, 120, 64, 33, 90, 75, 2]
FORMS = {
    "float32": WeightForm(torch.float32),
    "bfloat16": WeightForm(torch.bfloat16),
    "int8": WeightForm(torch.bfloat16, int8=True),
}


@dataclass(frozen=True)
class Kind:
    """How a layer is made, and what its family adds to logits."""

    make: Callable[[ModelConfig], nn.Module]
    terms: Callable[[], AttentionTerms] = lambda: NO_TERMS


def rotary(config: ModelConfig, rows: int = 512) -> Rotary:
    return Rotary(config.head_dim, rows, RopeConfig())


def windowed(config: ModelConfig) -> nn.Module:
    return PreNormLayer(
        config,
        bidirectional(config, (16, 16)),
        attention_norm=False,
        gate="first",
        bias=False,
        rotary=rotary(config),
    )


def soft_spec(config: ModelConfig) -> AttentionSpec:
    return replace(causal(config, 50), softcap=3.0)


def soft_capped(config: ModelConfig) -> nn.Module:
    return PreNormLayer(
        config, soft_spec(config), norm=RMSNorm, gate="second", rotary=rotary(config)
    )


KINDS = {
    "post-norm": Kind(PostNormLayer),
    "gated rotary post-norm": Kind(
        lambda config: PostNormLayer(config, gate="second", up_bias=False, rotary=rotary(config))
    ),
    "pre-norm": Kind(lambda config: PreNormLayer(config, bidirectional(config))),
    "window": Kind(windowed),
    "causal": Kind(soft_capped),
    "normed heads": Kind(
        lambda config: PreNormLayer(
            config, causal(config), norm=RMSNorm, head_norm=True, rotary=rotary(config)
        )
    ),
    "layer-normed heads": Kind(
        lambda config: PreNormLayer(config, bidirectional(config), head_norm=True)
    ),
    "sandwich": Kind(
        lambda config: SandwichLayer(
            config, soft_spec(config), norm=RMSNorm, gate="first", head_norm=True
        )
    ),
    "alibi": Kind(
        lambda config: JinaBertLayer(config, "gelu_erf", normed=False),
        lambda: AttentionTerms(alibi_slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625])),
    ),
    "bias": Kind(PostNormLayer, lambda: AttentionTerms(bias=torch.randn(4, 300, 300))),
    "hidden keys": Kind(
        PostNormLayer,
        lambda: AttentionTerms(key_mask=(torch.arange(sum(LENS)) % 3 > 0).to(torch.uint8)),
    ),
}


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    torch.manual_seed(3)
    backend.configure("native", CPU, torch.float32, threads=1)
    yield
    backend.configure("torch", CPU, torch.float32)


@pytest.fixture
def config(tiny_bert: Path) -> ModelConfig:
    return load_model_config(tiny_bert, name="m", revision="", engine=EngineConfig())


def batch_of(lens: list[int], read: ReadRows | None = None) -> PackedBatch:
    return PackedBatch(
        input_ids=torch.zeros(sum(lens), dtype=torch.int32),
        positions=torch.cat([torch.arange(n) for n in lens]).int(),
        cu_seqlens=torch.tensor([0, *lens]).cumsum(0).int(),
        seq_lens=lens,
        read=read,
    )


def layers_of(kind: Kind, config: ModelConfig, form: WeightForm, count: int = 3) -> list[nn.Module]:
    layers = [kind.make(config) for _ in range(count)]
    for layer in layers:
        for parameter in layer.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape) / 4)
        layer.requires_grad_(False)
        pack_weights(layer, form)
    return layers


def one_by_one(layers: list[nn.Module], x: Tensor, batch: PackedBatch, terms: Any) -> Tensor:
    for layer in layers[:-1]:
        x = layer(x, batch.whole(), terms)
    out: Tensor = layers[-1](x, batch, terms)
    return out


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_gets_what_the_modules_give_it(
    kind: str, form: str, threads: int, config: ModelConfig
) -> None:
    native.set_num_threads(threads)
    layers, terms = layers_of(KINDS[kind], config, FORMS[form]), KINDS[kind].terms()
    run = RunLayers(layers)
    assert run._stack is not None
    x = torch.randn(sum(LENS), config.hidden_size)
    expected = one_by_one(layers, x.clone(), batch_of(LENS), terms)
    assert torch.equal(run(x.clone(), batch_of(LENS), terms), expected)


@pytest.mark.parametrize("level", VARLEN_LEVELS)
def test_on_every_level(level: str, config: ModelConfig) -> None:
    with at_level(level):
        layers = layers_of(KINDS["post-norm"], config, FORMS["bfloat16"])
        x = torch.randn(sum(LENS), config.hidden_size)
        expected = one_by_one(layers, x.clone(), batch_of(LENS), NO_TERMS)
        assert torch.equal(RunLayers(layers)(x.clone(), batch_of(LENS), NO_TERMS), expected)


def read_of(lens: list[int], places: list[list[int]], *, trailing: bool) -> ReadRows:
    """The rows at `places` of each sequence."""
    starts = [0, *accumulate(lens)]
    rows = [start + at for start, found in zip(starts, places, strict=False) for at in found]
    counts = [len(found) for found in places]
    bounds = torch.tensor([0, *accumulate(counts)]).int()
    return ReadRows(torch.tensor(rows), bounds, counts, trailing)


@pytest.mark.parametrize("trailing", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_last_layer_makes_the_rows_that_are_read(
    kind: str, threads: int, trailing: bool, config: ModelConfig
) -> None:
    native.set_num_threads(threads)
    ends = [[n - 1] for n in LENS]
    some = [list(range(n % 2, n, 3)) for n in LENS]
    read = read_of(LENS, ends if trailing else some, trailing=trailing)
    for count in (1, 3):
        layers, terms = (
            layers_of(KINDS[kind], config, FORMS["bfloat16"], count),
            KINDS[kind].terms(),
        )
        x = torch.randn(sum(LENS), config.hidden_size)
        whole = RunLayers(layers)(x.clone(), batch_of(LENS), terms)
        found = RunLayers(layers)(x.clone(), batch_of(LENS, read), terms)
        assert torch.equal(found, whole[read.rows])
        assert torch.equal(found, one_by_one(layers, x.clone(), batch_of(LENS, read), terms))


# --- keys and values that outlive the call -------------------------------------------------------

SLOTS, BLOCK = 2048, 8


def decoder(config: ModelConfig, form: str, count: int = 3) -> list[nn.Module]:
    made = iter(range(count))
    kind = Kind(
        lambda config: PreNormLayer(
            config,
            causal(config),
            norm=RMSNorm,
            head_norm=True,
            rotary=rotary(config),
            kv_layer=next(made),
        )
    )
    return layers_of(kind, config, FORMS[form], count)


def kept_batch(parts: list[ScheduledRequest], memory: KVMemory, read: bool = False) -> PackedBatch:
    lens = [part.num_tokens for part in parts]
    ends = read_of(lens, [[n - 1] for n in lens], trailing=True) if read else None
    positions = [torch.arange(part.start, part.start + part.num_tokens) for part in parts]
    return replace(
        batch_of(lens, ends), positions=torch.cat(positions).int(), kv=memory.view(parts)
    )


def part(blocks: range | list[int], start: int, end: int) -> ScheduledRequest:
    used = list(blocks)[: -(-end // BLOCK)]
    return ScheduledRequest(
        "r", [0] * end, PoolingParams("embed"), start, end - start, block_ids=used
    )


# The later parts of three prompts; the third prompt reads what the fourth one writes.
FIRST = [part(range(40), 0, 300), part(range(40, 50), 0, 77), part(range(60, 80), 0, 150)]
SECOND = [
    part(range(40), 300, 310),
    part([*range(40, 50), *range(205, 210)], 77, 100),
    part([*range(80, 85), *range(145, 205)], 40, 500),
    part(range(80, 140), 0, 480),
    part([*range(60, 78), 220, 221], 144, 155),
]


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("form", ["float32", "bfloat16", "int8"])
def test_kept_keys_are_those_of_the_modules(
    form: str, threads: int, read: bool, config: ModelConfig
) -> None:
    native.set_num_threads(threads)
    layers = decoder(config, form)
    dtype = torch.float32 if form == "float32" else torch.bfloat16
    memories = []
    for _ in range(2):
        space = KVSpace(SLOTS // BLOCK, BLOCK)
        memory = KVMemory(space, KVShape(3, config.hidden_size), dtype, CPU)
        memory.entries.zero_()
        memories.append(memory)
    run = RunLayers(layers)
    for step in (FIRST, SECOND):
        x = torch.randn(sum(one.num_tokens for one in step), config.hidden_size)
        batches = [kept_batch(step, memory, read) for memory in memories]
        expected = one_by_one(layers, x.clone(), batches[0], NO_TERMS)
        assert run._stack is not None
        assert run._may_stack(run._stack, batches[1], NO_TERMS)
        assert torch.equal(run(x.clone(), batches[1], NO_TERMS), expected)
        assert torch.equal(memories[0].entries, memories[1].entries)


def test_sequences_that_need_each_other_are_joined() -> None:
    memory = KVMemory(KVSpace(SLOTS // BLOCK, BLOCK), KVShape(1, 8), torch.float32, CPU)
    second = memory.view(SECOND)
    assert second is not None
    assert second.joined is not None
    assert second.joined.tolist() == [0, 0, 0, 1, 0]
    apart = memory.view([SECOND[0], SECOND[1]])
    assert apart is not None
    assert apart.joined is None


def test_kept_keys_that_do_not_fit_are_refused(config: ModelConfig) -> None:
    (layer,) = decoder(config, "float32", 1)
    stack = RunLayers([layer])._stack
    assert stack is not None
    x, cu = torch.zeros(4, config.hidden_size), torch.tensor([0, 4]).int()
    entries, slots = torch.zeros(1, 8, 2 * config.hidden_size), torch.tensor([0, 1, 2, 8])
    positions = torch.arange(4).int()

    def run(**changes: int) -> None:
        kept = {
            "kept": entries.data_ptr(),
            "kept_layers": 1,
            "kept_slots": 8,
            "kept_width": 2 * config.hidden_size,
            "written": slots.data_ptr(),
        }
        stack.native.run(
            x.data_ptr(), cu.data_ptr(), 1, positions=positions.data_ptr(), **{**kept, **changes}
        )

    with pytest.raises(IndexError, match="no such slot"):
        run()
    slots[3] = 3
    run()
    with pytest.raises(ValueError, match="no such layer"):
        run(kept_layers=0)
    with pytest.raises(ValueError, match="of another width"):
        run(kept_width=config.hidden_size)
    fewer = torch.tensor([0, 3]).int()
    with pytest.raises(ValueError, match="fewer keys than queries"):
        run(key_slots=slots.data_ptr(), key_cu_seqlens=fewer.data_ptr())


def test_layers_of_one_kind_share_a_call_and_others_do_not(config: ModelConfig) -> None:
    apart = partial(PostNormLayer, config, mlp=nn.Linear(32, 32))
    variant = partial(JinaBertLayer, config, "relu", normed=True)
    for make in (apart, variant):
        layer = make().requires_grad_(False)
        pack_weights(layer, FORMS["float32"])
        assert RunLayers([layer])._stack is None


def test_a_position_outside_the_table_is_refused(config: ModelConfig) -> None:
    kind = Kind(lambda config: PostNormLayer(config, rotary=rotary(config, rows=16)))
    run = RunLayers(layers_of(kind, config, FORMS["float32"]))
    run(torch.randn(16, config.hidden_size), batch_of([16]), NO_TERMS)
    with pytest.raises(InvalidRequest, match="outside the rotary table"):
        run(torch.randn(17, config.hidden_size), batch_of([17]), NO_TERMS)


def test_a_stack_refuses_what_does_not_fit(config: ModelConfig) -> None:
    (layer,) = layers_of(KINDS["post-norm"], config, FORMS["float32"], 1)
    assert isinstance(layer, PostNormLayer)
    weights = (layer.attention.qkv, layer.attention.out, layer.mlp.up, layer.mlp.down)
    packed = [weight.prepared.packed for weight in weights]
    heads = {"heads": 4, "kv_heads": 4, "head_dim": 8, "scale": 1.0, "activation": 0}
    stack = native.LayerStack(config.hidden_size, 0)
    with pytest.raises(ValueError, match="width of its rows"):
        native.LayerStack(config.hidden_size + 8, 0).add(*packed, **heads)
    with pytest.raises(ValueError, match="fit its heads"):
        stack.add(*packed, **{**heads, "head_dim": 16})
    with pytest.raises(ValueError, match="up and down don't fit"):
        stack.add(*packed[:2], packed[1], packed[3], **heads)
    with pytest.raises(ValueError, match="no norm to add behind"):
        stack.add(*packed, **heads, adds_behind=True)
    stack.add(*packed, **heads)
    x, cu = torch.zeros(4, config.hidden_size), torch.tensor([0, 4]).int()
    with pytest.raises(ValueError, match="at least one layer"):
        native.LayerStack(config.hidden_size, 0).run(x.data_ptr(), cu.data_ptr(), 1)
    backwards = torch.tensor([0, 4, 3]).int()
    with pytest.raises(ValueError, match="must not decrease"):
        stack.run(x.data_ptr(), backwards.data_ptr(), 2)
    rows, out = torch.tensor([1, 4]), torch.zeros(2, config.hidden_size)
    bounds = torch.tensor([0, 2]).int()
    with pytest.raises(IndexError, match="not in its sequence"):
        stack.run(
            x.data_ptr(),
            cu.data_ptr(),
            1,
            read_rows=rows.data_ptr(),
            read_cu_seqlens=bounds.data_ptr(),
            out=out.data_ptr(),
        )
    bias = torch.zeros(4, 3, 3)
    with pytest.raises(ValueError, match="longer than bias_size"):
        stack.run(x.data_ptr(), cu.data_ptr(), 1, bias=bias.data_ptr(), bias_size=3)
