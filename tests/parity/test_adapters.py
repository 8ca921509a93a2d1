"""LoRA adapters in PEFT's form: side by side in one batch, each equal to weights merged with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_jina_embeddings_v3 import LONG, save_adapted
from tiny import MakeTiny
from torch import Tensor
from torch.nn import functional as F

from cenote import LLM
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.processors.inputs import ClassifyInput, EmbedInput
from cenote.processors.prepared import Prepared

RANK, ALPHA = 3, 5

# Family → architecture's stem, tokenizer, modules that PEFT would be told to adapt.
FAMILIES = {
    "bert": ("Bert", "wordpiece", ("query", "value", "dense")),
    "roberta": ("Roberta", "bpe", ("query", "key", "value", "intermediate.dense")),
    "distilbert": ("DistilBert", "wordpiece", ("q_lin", "v_lin", "lin1", "lin2")),
    "modernbert": ("ModernBert", "bpe", ("Wqkv", "Wi", "Wo")),
    "qwen3": ("Qwen3", "bpe", ("q_proj", "v_proj", "gate_proj", "down_proj")),
    "gpt2": ("GPT2", "bpe", ("c_attn", "c_fc")),
}
SIZES: dict[str, dict[str, Any]] = {
    "distilbert": {"hidden_dim": 64},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "gpt2": {"n_layer": 2, "n_head": 4, "n_inner": 64},
}
# Which adapter each prompt of the mixed batch has.
MIX = ("one", None, "two", "two", None, "one")


def save_adapter(
    folder: Path,
    base: Path,
    targets: tuple[str, ...],
    seed: int,
    *,
    whole: dict[str, Tensor] | None = None,
    **config: Any,
) -> dict[str, Tensor]:
    """Saves an adapter of a base model; the base's weights merged with it."""
    random = torch.Generator().manual_seed(seed)
    merged, tensors = load_file(base / "model.safetensors"), {}
    scale = ALPHA / (RANK**0.5 if config.get("use_rslora") else RANK)
    for name, weight in sorted(merged.items()):
        module = name.removesuffix(".weight")
        if module == name or weight.dim() != 2 or not module.endswith(targets):
            continue
        # GPT-2 keeps its matrices turned.
        turned = ".c_" in name
        outputs, inputs = weight.shape[::-1] if turned else weight.shape
        a = torch.randn(RANK, inputs, generator=random) * 0.2
        b = torch.randn(outputs, RANK, generator=random) * 0.2
        tensors[f"base_model.model.{module}.lora_A.weight"] = a
        tensors[f"base_model.model.{module}.lora_B.weight"] = b
        change = b @ a * scale
        merged[name] = weight + (change.T if turned else change)
    assert tensors
    for name, tensor in (whole or {}).items():
        tensors[f"base_model.model.{name}"] = merged[name] = tensor
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", **config}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return merged


def save_merged(folder: Path, base: Path, weights: dict[str, Tensor]) -> Path:
    shutil.copytree(base, folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def random_ids_of(llm: LLM) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    size = llm.model_config.vocab_size
    return [
        torch.randint(5, size, (n,), generator=generator).tolist() for n in (1, 2, 7, 33, 7, 64)
    ]


def vectors(llm: LLM, prompts: Sequence[list[int]], adapter: str | None = None) -> Tensor:
    found = llm.embed(prompts, adapter=adapter)
    return torch.stack([torch.from_numpy(item.embedding) for item in found])


def mixed(llm: LLM, prepared: Prepared[Any]) -> Any:
    """Every prompt with its own adapter, all of them handed to the engine at once."""
    requests = [
        msgspec.structs.replace(request, adapter=name)
        for request, name in zip(prepared.requests, MIX, strict=True)
    ]
    return prepared.finish(llm._client.submit(requests).result())


def reference_vectors(folder: Path, prompts: Sequence[list[int]], *, last: bool) -> Tensor:
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        rows = [model(torch.tensor([ids])).last_hidden_state[0] for ids in prompts]
    return F.normalize(torch.stack([row[-1] if last else row.mean(0) for row in rows]), dim=-1)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_adapters_and_the_base_in_one_batch(
    family: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    stem, kind, targets = FAMILIES[family]
    base = make_tiny(f"{stem}Model", kind, **SIZES.get(family, {}))
    merged = {
        "one": save_adapter(tmp_path / "one", base, targets, 1),
        "two": save_adapter(tmp_path / "two", base, targets[:1], 2, use_rslora=True),
    }
    adapters = tuple(f"{name}={tmp_path / name}" for name in merged)
    settings: dict[str, Any] = {"dtype": "float32", "kernels": kernels, "threads": 1}
    with LLM(str(base), adapters=adapters, **settings) as llm:
        prompts = random_ids_of(llm)
        together = mixed(llm, llm._processors.embed(EmbedInput(prompts=prompts)))
        alone = {name: vectors(llm, prompts, name) for name in ("one", "two", None)}
    with LLM(str(base), **settings) as plain:
        assert torch.equal(alone[None], vectors(plain, prompts))
    for index, name in enumerate(MIX):
        assert abs(together[index].embedding - alone[name][index].numpy()).max() <= 1e-5
    for name, weights in merged.items():
        folder = save_merged(tmp_path / f"{name}-merged", base, weights)
        expected = reference_vectors(folder, prompts, last=family in ("qwen3", "gpt2"))
        assert (alone[name] - alone[None]).abs().max() > 0.01
        assert (alone[name] - expected).abs().max() <= 1e-5


def test_bfloat16_stays_close_to_merged_weights(make_tiny: MakeTiny, tmp_path: Path) -> None:
    base = make_tiny("BertModel", "wordpiece")
    merged = save_adapter(tmp_path / "one", base, ("query", "dense"), 1)
    with LLM(str(base), dtype="bfloat16", adapters=(f"one={tmp_path / 'one'}",)) as llm:
        prompts = random_ids_of(llm)
        found = vectors(llm, prompts, "one")
    folder = save_merged(tmp_path / "merged", base, merged)
    expected = reference_vectors(folder, prompts, last=False)
    assert F.cosine_similarity(found, expected).min() >= 0.9995


@pytest.mark.parametrize(
    "architecture", ["BertForSequenceClassification", "Qwen3ForSequenceClassification"]
)
def test_a_classifier_of_its_own(architecture: str, make_tiny: MakeTiny, tmp_path: Path) -> None:
    is_decoder = architecture.startswith("Qwen3")
    kind = "bpe" if is_decoder else "wordpiece"
    base = make_tiny(architecture, kind, num_labels=3, **SIZES["qwen3"] if is_decoder else {})
    head = "score" if is_decoder else "classifier"
    own = {f"{head}.weight": torch.randn(3, 32)}
    if not is_decoder:
        own["classifier.bias"] = torch.randn(3)
    targets = ("v_proj",) if is_decoder else ("value", "dense")
    merged = save_adapter(tmp_path / "one", base, targets, 1, whole=own)
    folder = save_merged(tmp_path / "merged", base, merged)
    settings: dict[str, Any] = {"dtype": "float32", "threads": 1}
    with LLM(str(base), adapters=(f"one={tmp_path / 'one'}",), **settings) as llm:
        prompts = random_ids_of(llm)
        together = mixed(llm, llm._processors.classify(ClassifyInput(prompts=prompts)))
    expected = {}
    for name, path in (("one", folder), (None, base)):
        with LLM(str(path), **settings) as llm:
            expected[name] = llm.classify(prompts)
    for index, name in enumerate(MIX):
        wanted = expected["one" if name == "one" else None][index].probs
        assert abs(together[index].probs - wanted).max() <= 1e-5


# What PEFT is asked for, on which base.
LINEAR = ["query", "value", "dense"]
PEFT: dict[str, tuple[str, dict[str, Any]]] = {
    "patterns": (
        "Bert",
        {
            "target_modules": LINEAR,
            "rank_pattern": {"query": 5, r"layer\.1\.output\.dense": 2},
            "alpha_pattern": {"value": 9},
            "use_rslora": True,
        },
    ),
    "dora": ("Bert", {"target_modules": LINEAR, "use_dora": True}),
    "dora, turned": ("GPT2", {"target_modules": ["c_attn", "c_fc"], "use_dora": True}),
    "table": ("Bert", {"target_modules": [*LINEAR, "word_embeddings"]}),
    "types": ("Bert", {"target_modules": ["token_type_embeddings"]}),
    "scaled table": ("Gemma3Text", {"target_modules": ["q_proj", "embed_tokens"]}),
    "projected table": ("Electra", {"target_modules": ["word_embeddings"]}),
    "whole table": (
        "Bert",
        {"target_modules": ["query"], "modules_to_save": ["word_embeddings"]},
    ),
}


@pytest.mark.parametrize("name", PEFT)
def test_adapters_are_peft_s(name: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path) -> None:
    stem, settings = PEFT[name]
    sizes = {"Gemma3Text": {"head_dim": 8, "num_key_value_heads": 2}, "GPT2": SIZES["gpt2"]}
    is_decoder = stem in sizes
    kind = "bpe" if is_decoder else "wordpiece"
    base = make_tiny(f"{stem}Model", kind, **sizes.get(stem, {}))
    torch.manual_seed(0)
    config = peft.LoraConfig(r=3, lora_alpha=5, fan_in_fan_out=stem == "GPT2", **settings)
    model = peft.get_peft_model(transformers.AutoModel.from_pretrained(base), config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path / "one", save_embedding_layers=False)
    settings = {"dtype": "float32", "kernels": kernels, "threads": 1}
    with LLM(str(base), adapters=(f"one={tmp_path / 'one'}",), **settings) as llm:
        prompts = random_ids_of(llm)
        found, bare = vectors(llm, prompts, "one"), vectors(llm, prompts)
        together = mixed(llm, llm._processors.embed(EmbedInput(prompts=prompts)))
    with torch.inference_mode():
        rows = [model(input_ids=torch.tensor([ids])).last_hidden_state[0] for ids in prompts]
    pooled = torch.stack([row[-1] if is_decoder else row.mean(0) for row in rows])
    expected = F.normalize(pooled, dim=-1)
    assert (found - expected).abs().max() <= 1e-5
    assert (found - bare).abs().max() > 0.01
    for index, wanted in enumerate(MIX):
        own = found[index] if wanted == "one" else bare[index]
        assert abs(together[index].embedding - own.numpy()).max() <= 1e-5


def test_dora_of_a_table_is_refused(make_tiny: MakeTiny, tmp_path: Path) -> None:
    base = make_tiny("BertModel", "wordpiece")
    config = peft.LoraConfig(r=2, target_modules=["word_embeddings"], use_dora=True)
    model = peft.get_peft_model(transformers.AutoModel.from_pretrained(base), config)
    model.save_pretrained(tmp_path / "one", save_embedding_layers=False)
    with pytest.raises(ModelLoadError, match="word_embeddings: use_dora is not supported"):
        LLM(str(base), adapters=(f"one={tmp_path / 'one'}",))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"peft_type": "IA3"}, "peft_type 'IA3'"),
        ({"lora_bias": True}, "lora_bias=True"),
        ({"use_dora": True}, "it must have lora_A, lora_B, lora_magnitude_vector"),
        ({"bias": "all"}, "bias='all'"),
        ({"alpha_pattern": ["query"]}, "alpha_pattern"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
    ],
)
def test_settings_that_change_the_sums_are_refused(
    change: dict[str, Any], names: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    base = make_tiny("BertModel", "wordpiece")
    save_adapter(tmp_path / "one", base, ("query",), 1, **change)
    with pytest.raises(ModelLoadError, match=names):
        LLM(str(base), adapters=(f"one={tmp_path / 'one'}",))


def test_a_module_may_have_an_alpha_of_its_own(make_tiny: MakeTiny, tmp_path: Path) -> None:
    base = make_tiny("BertModel", "wordpiece")
    patterns = {r"layer\.0\.attention\.self\.query": 2 * ALPHA}
    save_adapter(tmp_path / "own", base, ("0.attention.self.query",), 1, alpha_pattern=patterns)
    save_adapter(tmp_path / "all", base, ("0.attention.self.query",), 1, lora_alpha=2 * ALPHA)
    folders = tuple(f"{name}={tmp_path / name}" for name in ("own", "all"))
    with LLM(str(base), dtype="float32", adapters=folders) as llm:
        prompts = random_ids_of(llm)
        assert torch.equal(vectors(llm, prompts, "own"), vectors(llm, prompts, "all"))


def test_modules_that_cannot_be_changed_are_all_named(make_tiny: MakeTiny, tmp_path: Path) -> None:
    base = make_tiny("BertModel", "wordpiece")
    foreign = make_tiny("DistilBertModel", "wordpiece", **SIZES["distilbert"])
    save_adapter(tmp_path / "one", foreign, ("q_lin",), 1)
    with pytest.raises(ModelLoadError) as raised:
        LLM(str(base), adapters=(f"one={tmp_path / 'one'}",))
    for layer in range(2):
        assert f"transformer.layer.{layer}.attention.q_lin" in str(raised.value)
    save_adapter(tmp_path / "none", base, ("pooler.dense",), 1)
    with pytest.raises(ModelLoadError, match="changes nothing that this model uses"):
        LLM(str(base), adapters=(f"none={tmp_path / 'none'}",))
    save_adapter(tmp_path / "two", base, ("word_embeddings",), 1)
    with pytest.raises(ModelLoadError, match="changed by lora_embedding_A"):
        LLM(str(base), adapters=(f"two={tmp_path / 'two'}",))


def test_weights_that_distances_share_are_refused(make_tiny: MakeTiny, tmp_path: Path) -> None:
    sizes = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "share_att_key": True}
    base = make_tiny("DebertaV2Model", "wordpiece", **sizes)
    merged = save_adapter(tmp_path / "out", base, ("dense",), 1)
    save_adapter(tmp_path / "query", base, ("query_proj",), 1)
    with LLM(str(base), dtype="float32", adapters=(f"out={tmp_path / 'out'}",)) as llm:
        prompts = random_ids_of(llm)
        found = vectors(llm, prompts, "out")
    folder = save_merged(tmp_path / "merged", base, merged)
    assert (found - reference_vectors(folder, prompts, last=False)).abs().max() <= 1e-5
    with pytest.raises(ModelLoadError, match=r"query_proj.weight: only plain matrix products"):
        LLM(str(base), adapters=(f"query={tmp_path / 'query'}",))


def test_an_unknown_adapter_is_refused_by_name(make_tiny: MakeTiny, tmp_path: Path) -> None:
    base = make_tiny("BertModel", "wordpiece")
    save_adapter(tmp_path / "one", base, ("query",), 1)
    llm = LLM(str(base), adapters=(f"one={tmp_path / 'one'}",))
    with llm, pytest.raises(InvalidRequest, match="No adapter is named 'two'"):
        llm.embed("a", adapter="two")
    with pytest.raises(InvalidRequest, match="adapters must be name=folder"):
        LLM(str(base), adapters=("one",))


def test_a_model_with_adapters_of_its_own_takes_others(make_tiny: MakeTiny, tmp_path: Path) -> None:
    plain = make_tiny("JinaEmbeddingsV3Model", "unigram", **LONG)
    base, own = save_adapted(plain, tmp_path / "own")
    targets = ("Wqkv", "out_proj", "fc2")
    merged = save_adapter(tmp_path / "one", plain, targets, 1)
    folder = save_merged(tmp_path / "merged", plain, merged)
    with LLM(str(base), dtype="float32", adapters=(f"one={tmp_path / 'one'}",)) as llm:
        prompts = random_ids_of(llm)
        found = [vectors(llm, prompts, name) for name in ("one", "separation")]
        with pytest.raises(ModelLoadError, match="an adapter 'separation' of its own"):
            LLM(str(base), adapters=(f"separation={tmp_path / 'one'}",))
    for ours, path in zip(found, (folder, own[2]), strict=True):
        theirs = reference_vectors(path, prompts, last=False)
        assert (ours - theirs).abs().max() <= 1e-5
