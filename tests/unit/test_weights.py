"""Loading is strict both ways and names what is wrong; every dtype and file form fills a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cenote.errors import ModelLoadError
from cenote.loader.rules import Ignore, Rename, Rule, Stack, Transpose
from cenote.loader.weights import load_weights


class Tiny(nn.Module):
    """A stacked projection with unequal parts, a plain layer, a table and a persistent buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 8)
        self.out = nn.Linear(4, 3)
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("cosines", torch.ones(5), persistent=False)


RULES: tuple[Rule, ...] = (
    *(
        Stack(rf"attention\.{part}\.(weight|bias)", r"qkv.\1", index, 3)
        for index, part in enumerate(("query", "key", "value"))
    ),
    Transpose(r"head\.weight", r"out.weight"),
    Rename(r"head\.(.*)", r"out.\1"),
    Ignore(r"position_ids"),
)


def checkpoint() -> dict[str, Tensor]:
    torch.manual_seed(0)
    tensors = {"counts": torch.tensor([3, 4]), "position_ids": torch.arange(9)}
    for part, rows in (("query", 4), ("key", 2), ("value", 2)):
        tensors[f"attention.{part}.weight"] = torch.randn(rows, 4)
        tensors[f"attention.{part}.bias"] = torch.randn(rows)
    return {**tensors, "head.weight": torch.randn(4, 3), "head.bias": torch.randn(3)}


def tiny_on_meta() -> Tiny:
    with torch.device("meta"):
        return Tiny()


def save(folder: Path, tensors: dict[str, Tensor], name: str = "model.safetensors") -> None:
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / name)


def expect_loaded(model: Tiny, tensors: dict[str, Tensor], dtype: torch.dtype) -> None:
    parts = ("query", "key", "value")
    weight = torch.cat([tensors[f"attention.{part}.weight"] for part in parts])
    bias = torch.cat([tensors[f"attention.{part}.bias"] for part in parts])
    assert torch.equal(model.qkv.weight, weight.to(dtype))
    assert torch.equal(model.qkv.bias, bias.to(dtype))
    assert torch.equal(model.out.weight, tensors["head.weight"].T.to(dtype))
    assert torch.equal(model.out.bias, tensors["head.bias"].to(dtype))
    assert model.counts.tolist() == [3, 4]
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_becomes_the_wanted_one(
    tmp_path: Path, stored: torch.dtype, wanted: torch.dtype
) -> None:
    tensors = {
        name: tensor.to(stored) if tensor.is_floating_point() else tensor
        for name, tensor in checkpoint().items()
    }
    save(tmp_path, tensors)
    model = tiny_on_meta()
    load_weights(model, RULES, tmp_path, wanted)
    expect_loaded(model, tensors, wanted)


def test_without_a_dtype_each_parameter_keeps_its_own(tmp_path: Path) -> None:
    save(tmp_path, checkpoint())
    model = Tiny()
    model.qkv.to(torch.bfloat16)
    load_weights(model, RULES, tmp_path, None)
    assert (model.qkv.weight.dtype, model.out.weight.dtype) == (torch.bfloat16, torch.float32)


def test_sharded_checkpoint_is_read_by_its_index(tmp_path: Path) -> None:
    tensors = checkpoint()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[:4], "model-2.safetensors": names[4:]}
    for file, own in shards.items():
        save(tmp_path, {name: tensors[name] for name in own}, file)
    weight_map = {name: file for file, own in shards.items() for name in own}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    model = tiny_on_meta()
    load_weights(model, RULES, tmp_path, torch.float32)
    expect_loaded(model, tensors, torch.float32)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match=r"model-1\.safetensors"):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../other/model.safetensors"}, r"outside the folder: \['\.\./other/model"),
        ({"a": "/etc/passwd"}, "outside the folder"),
        ({"a": None}, r"not there: \['None'\]"),
        (["model-1.safetensors"], "weight_map is not a map"),
        ("model-1.safetensors", "weight_map is not a map"),
    ],
)
def test_an_index_of_other_files_is_refused(
    weight_map: object, message: str, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ModelLoadError, match=message):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    tensors = checkpoint()
    del tensors["attention.key.bias"], tensors["counts"]
    tensors["extra.weight"] = torch.zeros(1)
    tensors["head.scale"] = torch.zeros(1)
    tensors["head.bias"] = torch.zeros(7)
    save(tmp_path, tensors)
    model = Tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ModelLoadError) as caught:
        load_weights(model, RULES, tmp_path, torch.float32)
    message = caught.value.message
    assert "missing parameter: counts" in message
    assert "missing parameter: qkv.bias (part [1] of 3" in message
    assert "unused tensor: extra.weight" in message
    assert "unused tensor: head.scale (for out.scale)" in message
    assert "wrong shape: out.bias is [3], but head.bias is [7]" in message
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_optional_tensor_is_used_only_where_the_model_has_its_parameter(tmp_path: Path) -> None:
    tensors = {**checkpoint(), "extra": torch.zeros(3)}
    save(tmp_path, tensors)
    rules = (*RULES, Rename("extra", "scale", optional=True))
    without, having = tiny_on_meta(), tiny_on_meta()
    load_weights(without, rules, tmp_path, torch.float32)
    having.register_parameter("scale", nn.Parameter(torch.ones(3, device="meta")))
    load_weights(having, rules, tmp_path, torch.float32)
    assert having.get_parameter("scale").tolist() == [0, 0, 0]


def test_two_tensors_for_one_parameter_are_refused(tmp_path: Path) -> None:
    save(tmp_path, {**checkpoint(), "out.bias": torch.zeros(3)})
    with pytest.raises(ModelLoadError, match=r"filled more than once: out\.bias"):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    tensors = checkpoint()
    tensors["attention.key.weight"] = torch.zeros(2, 5)
    save(tmp_path, tensors)
    with pytest.raises(ModelLoadError, match=r"wrong shape: qkv.weight is \[8, 4\]"):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)


def test_quantised_tensor_is_refused(tmp_path: Path) -> None:
    tensors = checkpoint()
    tensors["head.bias"] = torch.zeros(3, dtype=torch.int8)
    save(tmp_path, tensors)
    with pytest.raises(ModelLoadError, match=r"head\.bias is torch\.int8"):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)


def test_tied_parameters_are_filled_once_and_stay_tied(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = nn.ModuleDict({"table": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)})
        model["head"].weight = model["table"].weight
    save(tmp_path, {"table.weight": torch.randn(5, 4)})
    load_weights(model, (), tmp_path, torch.float32)
    assert model["head"].weight is model["table"].weight
    assert not model["head"].weight.is_meta


def test_weights_do_not_depend_on_the_file_afterwards(tmp_path: Path) -> None:
    tensors = checkpoint()
    save(tmp_path, tensors)
    model = tiny_on_meta()
    load_weights(model, RULES, tmp_path, torch.float32)
    size = (tmp_path / "model.safetensors").stat().st_size
    (tmp_path / "model.safetensors").write_bytes(bytes(size))
    expect_loaded(model, tensors, torch.float32)


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "model.pt"])
def test_pickles_are_never_opened_and_the_way_out_is_told(tmp_path: Path, pickle: str) -> None:
    (tmp_path / pickle).write_bytes(b"cos\nsystem\n")
    with pytest.raises(ModelLoadError, match="save_pretrained") as caught:
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)
    assert pickle in caught.value.message


def test_folder_without_weights_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no \*\.safetensors file"):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"\x00\x01", "not a complete"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
)
def test_broken_file_is_named(tmp_path: Path, content: bytes, hint: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelLoadError, match=hint):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)


def test_truncated_file_is_named(tmp_path: Path) -> None:
    save(tmp_path, checkpoint())
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ModelLoadError, match="not a complete"):
        load_weights(tiny_on_meta(), RULES, tmp_path, torch.float32)
