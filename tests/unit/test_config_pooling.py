"""Pooling metadata of every generation becomes one form; unknown pooling is refused by name."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cenote.config.engine import EngineConfig
from cenote.config.metadata import load_pooler_config
from cenote.config.pooling import ColbertConfig, PoolerConfig, SparseConfig
from cenote.errors import InvalidRequest, ModelLoadError

OLD = "sentence_transformers.models."
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "MultiVectorMask": (
        "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
    ),
    "SpladePooling": "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
}
DENSE = {"in_features": 8, "out_features": 4, "bias": True}
PUNCTUATION = tuple(string.punctuation)

Modules = Sequence[tuple[str, dict[str, Any]]]


def put(folder: Path, name: str, value: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def put_modules(folder: Path, modules: Modules) -> None:
    """modules.json and each module's config; a type without a dot is of the old generation."""
    entries = []
    for index, (type_path, config) in enumerate(modules):
        kind = type_path.rpartition(".")[2]
        path = "" if kind == "Transformer" else f"{index}_{kind}"
        full = type_path if "." in type_path else OLD + type_path
        entries.append({"idx": index, "name": str(index), "path": path, "type": full})
        name = "sentence_bert_config.json" if kind == "Transformer" else "config.json"
        put(folder, f"{path}/{name}".removeprefix("/"), config)
    put(folder, "modules.json", entries)


def load(
    folder: Path, hf: dict[str, Any] | None = None, *, modules: Modules = (), **engine: Any
) -> PoolerConfig:
    if modules:
        put_modules(folder, modules)
    return load_pooler_config(folder, hf or {"hidden_size": 8}, EngineConfig(**engine))


def test_minilm_is_mean_and_normalised(minilm_path: Path) -> None:
    config = load(minilm_path)
    assert config == PoolerConfig(
        modes=("mean",), normalize=True, max_seq_length=256, declared=True
    )


@pytest.mark.parametrize(
    ("hf", "mode"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "mean"),
        ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, "last"),
        ({"model_type": "qwen3", "architectures": ["Qwen3Model"]}, "last"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "mean"),
        ({"model_type": "mistral", "is_causal": False}, "mean"),
    ],
)
def test_folder_without_metadata_gets_the_documented_default(
    tmp_path: Path, hf: dict[str, Any], mode: str
) -> None:
    config = load(tmp_path, {**hf, "hidden_size": 8})
    assert (config.modes, config.normalize, config.declared) == ((mode,), True, False)


@pytest.mark.parametrize(
    ("config", "modes"),
    [
        ({}, ("mean",)),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("cls",)),
        (
            {
                "pooling_mode_lasttoken": True,
                "pooling_mode_weightedmean_tokens": True,
                "pooling_mode_mean_sqrt_len_tokens": True,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": True,
                "pooling_mode_cls_token": True,
            },
            ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "last"),
        ),
        ({"pooling_mode": "lasttoken"}, ("last",)),
        ({"pooling_mode": ["mean", "cls"]}, ("mean", "cls")),
        ({"pooling_mode": "max", "pooling_mode_cls_token": True}, ("max",)),
    ],
)
def test_pooling_modes_of_both_generations(
    tmp_path: Path, config: dict[str, Any], modes: tuple[str, ...]
) -> None:
    for pooling in ("Pooling", NEW["Pooling"]):
        assert load(tmp_path, modules=[("Transformer", {}), (pooling, config)]).modes == modes


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"pooling_mode": "median"}, "'median'"),
        ({"pooling_mode": ["mean", "median"]}, "'median'"),
        ({"pooling_mode": []}, "not understood"),
        ({"pooling_mode_median_tokens": True}, "pooling_mode_median_tokens"),
    ],
)
def test_unknown_pooling_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    with pytest.raises(ModelLoadError, match=name):
        load(tmp_path, modules=[("Transformer", {}), ("Pooling", config)])


def test_pooling_without_its_config_is_refused(tmp_path: Path) -> None:
    load(tmp_path, modules=[("Transformer", {}), ("Pooling", {"pooling_mode": "cls"})])
    next(tmp_path.glob("*Pooling/config.json")).unlink()
    with pytest.raises(ModelLoadError, match=r"Pooling/config\.json is missing"):
        load(tmp_path)


def test_references_own_save_is_read(tmp_path: Path, tiny_bert: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import (
        Dense,
        Normalize,
        Pooling,
        Transformer,
    )
    from torch import nn

    model = SentenceTransformer(
        modules=[
            Transformer(str(tiny_bert), max_seq_length=50),
            Pooling(32, pooling_mode=("mean", "lasttoken"), include_prompt=False),
            Dense(64, 16, bias=False, activation_function=nn.GELU()),
            Normalize(),
        ],
        prompts={"query": "query: ", "passage": "passage: "},
        default_prompt_name="query",
        similarity_fn_name="dot",
    )
    model.save(str(tmp_path))
    config = load(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert config.modes == ("mean", "last")
    assert not config.include_prompt
    (dense,) = config.dense
    assert (dense.in_features, dense.out_features, dense.bias) == (64, 16, False)
    assert dense.activation == "gelu_erf"
    assert (tmp_path / dense.folder / "model.safetensors").is_file()
    assert config.normalize
    assert config.similarity == "dot"
    assert config.default_prompt_name == "query"
    assert config.prompts["passage"] == "passage: "


def test_dense_activation_is_tanh_unless_it_says_otherwise(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "tanh"),
        ({"activation_function": None}, "identity"),
        ({"activation_function": "torch.nn.modules.linear.Identity"}, "identity"),
        ({"activation_function": "torch.nn.modules.activation.SiLU"}, "silu"),
    ]
    for extra, name in cases:
        config = load(
            tmp_path,
            modules=[("Transformer", {}), ("Pooling", {}), ("Dense", {**DENSE, **extra})],
        )
        assert config.dense[0].activation == name
        assert not config.normalize


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"activation_function": "evil.module.Function"}, "evil.module.Function"),
        ({"activation_function": "torch.nn.modules.activation.Strange"}, "Strange"),
        ({"in_features": None}, "in_features must be an integer"),
    ],
)
def test_dense_that_cannot_be_followed_is_refused(
    tmp_path: Path, extra: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load(
            tmp_path,
            modules=[("Transformer", {}), ("Pooling", {}), ("Dense", {**DENSE, **extra})],
        )


@pytest.mark.parametrize("kind", ["Router", "Asym", "LSTM", "StaticEmbedding", "LayerNorm"])
def test_unknown_module_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ModelLoadError, match=kind):
        load(tmp_path, modules=[("Transformer", {}), (kind, {})])


def test_module_of_the_repository_never_runs(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"custom_st\.Transformer.*never runs"):
        load(tmp_path, modules=[("custom_st.Transformer", {})])


def test_module_folder_outside_the_model_is_refused(tmp_path: Path) -> None:
    entry = {"idx": 0, "name": "0", "path": "../../etc", "type": OLD + "Pooling"}
    put(tmp_path, "modules.json", [entry])
    with pytest.raises(ModelLoadError, match="outside the model folder"):
        load(tmp_path)


@pytest.mark.parametrize("content", ["{}", "[1]", '[{"path": ""}]'])
def test_broken_module_list_is_refused(tmp_path: Path, content: str) -> None:
    put(tmp_path, "modules.json", content)
    with pytest.raises(ModelLoadError, match=r"modules\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    "order", [("Normalize", "Pooling"), ("Pooling", "Normalize", "Dense"), ("Dense", "Pooling")]
)
def test_order_that_cannot_be_followed_is_refused(tmp_path: Path, order: Sequence[str]) -> None:
    configs: dict[str, dict[str, Any]] = {"Dense": DENSE}
    with pytest.raises(ModelLoadError, match="order"):
        load(
            tmp_path,
            modules=[("Transformer", {}), *((kind, configs.get(kind, {})) for kind in order)],
        )


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "xlm-roberta", "xlnet"])
def test_transformer_settings_under_each_name(tmp_path: Path, name: str) -> None:
    put(
        tmp_path,
        "modules.json",
        [{"idx": 0, "name": "0", "path": "", "type": NEW["Transformer"]}],
    )
    put(tmp_path, f"sentence_{name}_config.json", {"max_seq_length": 123, "do_lower_case": True})
    config = load(tmp_path)
    assert (config.max_seq_length, config.do_lower_case) == (123, True)


def test_settings_of_the_whole_model(tmp_path: Path) -> None:
    put(
        tmp_path,
        "config_sentence_transformers.json",
        {
            "prompts": {"query": "q: ", "document": None},
            "default_prompt_name": None,
            "similarity_fn_name": "manhattan",
        },
    )
    config = load(
        tmp_path,
        {
            "hidden_size": 8,
            "matryoshka_dimensions": [512, 64],
            "task_instructions": {"retrieval.query": "Find: ", "query": "old: "},
        },
    )
    assert config.prompts == {"retrieval.query": "Find: ", "query": "q: ", "document": ""}
    assert config.similarity == "manhattan"
    assert (config.matryoshka, config.is_matryoshka) == ((64, 512), True)
    assert load(tmp_path, {"hidden_size": 8, "is_matryoshka": True}).is_matryoshka


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"similarity_fn_name": "hamming"}, "'hamming'"),
        ({"default_prompt_name": "query", "prompts": {"q": ""}}, "'query' is none"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    put(tmp_path, "config_sentence_transformers.json", settings)
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path)


SIGMOID = "torch.nn.modules.activation.Sigmoid"
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("settings", "hf", "name"),
    [
        ({}, {}, None),
        ({}, {"sbert_ce_default_activation_function": IDENTITY}, "identity"),
        ({}, {"sentence_transformers": {"activation_fn": SIGMOID, "version": "4"}}, "sigmoid"),
        ({"activation_fn": IDENTITY}, {"sentence_transformers": {"version": "5"}}, "identity"),
        (
            {"activation_fn": IDENTITY},
            {"sentence_transformers": {"activation_fn": SIGMOID}},
            "identity",
        ),
    ],
)
def test_activation_of_a_cross_encoder_of_each_generation(
    tmp_path: Path, settings: dict[str, Any], hf: dict[str, Any], name: str | None
) -> None:
    put(tmp_path, "config_sentence_transformers.json", settings)
    assert load(tmp_path, {"hidden_size": 8, **hf}).activation == name


def test_activation_from_elsewhere_is_refused(tmp_path: Path) -> None:
    hf = {"hidden_size": 8, "sentence_transformers": {"activation_fn": "os.system"}}
    with pytest.raises(ModelLoadError, match=r"os\.system"):
        load(tmp_path, hf)


def test_user_overrides_pooling_and_normalisation(minilm_path: Path) -> None:
    assert load(minilm_path, pooling="cls").modes == ("cls",)
    assert load(minilm_path, pooling="lasttoken, mean").modes == ("last", "mean")
    assert not load(minilm_path, normalize=False).normalize
    with pytest.raises(InvalidRequest, match="'median'") as caught:
        load(minilm_path, pooling="median")
    assert caught.value.param == "pooling"


def test_splade_pooling_is_read(tmp_path: Path) -> None:
    splade = (NEW["SpladePooling"], {"pooling_strategy": "sum", "activation_function": "relu"})
    config = load(tmp_path, modules=[("Transformer", {}), splade])
    assert config.sparse == SparseConfig("sum", "relu")
    with pytest.raises(ModelLoadError, match="'min'"):
        load(
            tmp_path,
            modules=[("Transformer", {}), (NEW["SpladePooling"], {"pooling_strategy": "min"})],
        )


def test_stanford_colbert(tmp_path: Path) -> None:
    put(
        tmp_path,
        "artifact.metadata",
        {
            "dim": 96,
            "query_maxlen": 16,
            "doc_maxlen": 300,
            "mask_punctuation": False,
            "attend_to_mask_tokens": True,
            "query_token_id": "[QueryMarker]",
            "doc_token_id": "[DocumentMarker]",
        },
    )
    config = load(tmp_path, {"hidden_size": 8, "architectures": ["HF_ColBERT"]})
    assert config.colbert == ColbertConfig(
        dim=96,
        query_marker="[QueryMarker]",
        document_marker="[DocumentMarker]",
        query_length=16,
        document_length=300,
        attend_to_expansion_tokens=True,
    )
    assert (config.normalize, config.declared) == (True, True)


def test_stanford_colbert_without_metadata_gets_its_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, {"hidden_size": 8, "architectures": ["HF_ColBERT"], "colbert_dim": 64})
    assert config.colbert == ColbertConfig(dim=64, skiplist=PUNCTUATION)


@pytest.mark.parametrize("change", [{"similarity": "l2"}, {"query_maxlen": 0}, {"dim": "128"}])
def test_colbert_that_cannot_be_followed_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    put(tmp_path, "artifact.metadata", change)
    with pytest.raises(ModelLoadError):
        load(tmp_path)


def test_pylate(tmp_path: Path) -> None:
    put(
        tmp_path,
        "config_sentence_transformers.json",
        {
            "query_prefix": "[Q] ",
            "document_prefix": "[D] ",
            "query_length": 48,
            "document_length": 300,
            "do_query_expansion": True,
            "attend_to_expansion_tokens": False,
            "skiplist_words": ["!", "."],
            "prompts": {"query": "[Q] search: "},
            "similarity_fn_name": "MaxSim",
        },
    )
    dense = {**DENSE, "bias": False, "activation_function": IDENTITY}
    config = load(tmp_path, modules=[("Transformer", {}), ("pylate.models.Dense.Dense", dense)])
    assert config.colbert == ColbertConfig(
        dim=4,
        query_marker="[Q] ",
        document_marker="[D] ",
        query_length=48,
        document_length=300,
        skiplist=("!", "."),
    )
    assert config.dense[0].activation == "identity"
    assert config.normalize
    assert config.prompts == {"query": "search: "}


def test_pylate_without_expansion_and_lengths(tmp_path: Path) -> None:
    put(
        tmp_path,
        "config_sentence_transformers.json",
        {"do_query_expansion": False, "query_prefix": None, "document_prefix": "[D] "},
    )
    config = load(tmp_path, {"hidden_size": 8, "max_position_embeddings": 128})
    assert config.colbert == ColbertConfig(
        dim=8,
        query_marker="",
        document_marker="[D] ",
        query_length=128,
        document_length=128,
        do_query_expansion=False,
        skiplist=PUNCTUATION,
    )


def test_references_multi_vector_save_is_read(tmp_path: Path, tiny_colbert: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    MultiVectorEncoder(str(tiny_colbert)).save(str(tmp_path))
    config = load(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert config.colbert is not None
    assert config.colbert == ColbertConfig(
        dim=16,
        query_marker="",
        document_marker="",
        query_length=16,
        document_length=64,
        attend_to_expansion_tokens=False,
        skiplist=PUNCTUATION,
    )
    assert config.prompts == {"query": "[unused0] ", "document": "[unused1] "}
    assert config.normalize


@pytest.mark.parametrize(
    ("expansion", "expected"),
    [
        (None, (100, False, None)),
        ({"strategy": "fixed", "length": 24}, (24, True, None)),
        ({"strategy": "min", "length": 24, "token": "[PAD]"}, (100, True, 24)),
    ],
)
def test_expansion_of_sentence_transformers_form(
    tmp_path: Path, expansion: dict[str, Any] | None, expected: tuple[int, bool, int | None]
) -> None:
    config = load(
        tmp_path,
        modules=[
            (NEW["Transformer"], {"query_expansion": expansion, "max_seq_length": 100}),
            (NEW["Dense"], {**DENSE, "module_input_name": "token_embeddings"}),
            (NEW["MultiVectorMask"], {"skiplist_words": []}),
        ],
    )
    colbert = config.colbert
    assert colbert is not None
    found = (colbert.query_length, colbert.do_query_expansion, colbert.expansion_length)
    assert found == expected
    assert colbert.expansion_token == ("[PAD]" if expected[2] else None)
    assert not config.normalize


def test_mask_that_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    for mask in ({"keep_only_token_ids": [5]}, {"skiplist_tasks": ["query", "document"]}):
        with pytest.raises(ModelLoadError, match="MultiVectorMask"):
            load(tmp_path, modules=[("Transformer", {}), (NEW["MultiVectorMask"], mask)])
