"""config.json of every family becomes one form; what can't be followed is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cenote.config import activations, schema
from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.errors import ModelLoadError

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}


def put(folder: Path, name: str, value: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def load(folder: Path, config: Any = None, **engine: Any) -> ModelConfig:
    if config is not None:
        put(folder, "config.json", config)
    return load_model_config(
        folder, name="name", revision="revision", engine=EngineConfig(**engine)
    )


def test_minilm_is_read_whole(minilm_path: Path) -> None:
    config = load(minilm_path)
    assert (config.architecture, config.model_type) == ("BertModel", "bert")
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (30522, 384, 1536)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (6, 12, 12)
    assert (config.head_dim, config.norm_eps, config.hidden_act) == (32, 1e-12, "gelu_erf")
    assert config.max_model_len == 256
    assert config.transformer_path == config.path == minilm_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BertConfig", (768, 12, 12, 12, 64, 3072, "gelu_erf", 1e-12, 512)),
        ("RobertaConfig", (768, 12, 12, 12, 64, 3072, "gelu_erf", 1e-12, 510)),
        ("MPNetConfig", (768, 12, 12, 12, 64, 3072, "gelu_erf", 1e-12, 510)),
        ("DistilBertConfig", (768, 6, 12, 12, 64, 3072, "gelu_erf", 1e-12, 512)),
        ("AlbertConfig", (4096, 12, 64, 64, 64, 16384, "gelu_tanh", 1e-12, 512)),
        ("ModernBertConfig", (768, 22, 12, 12, 64, 1152, "gelu_erf", 1e-5, 8192)),
        ("Gemma3TextConfig", (2304, 26, 8, 4, 256, 9216, "gelu_tanh", 1e-6, 131072)),
        ("Qwen3Config", (4096, 32, 32, 32, 128, 22016, "silu", 1e-6, 32768)),
        ("LlamaConfig", (4096, 32, 32, 32, 128, 11008, "silu", 1e-6, 2048)),
        ("GPT2Config", (768, 12, 12, 12, 64, 3072, "gelu_tanh", 1e-5, 1024)),
    ],
)
def test_reference_configurations_are_read(
    tmp_path: Path, name: str, expected: tuple[Any, ...]
) -> None:
    import transformers

    getattr(transformers, name)(architectures=["AnyModel"]).save_pretrained(tmp_path)
    config = load(tmp_path)
    assert expected == (
        config.hidden_size,
        config.num_layers,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        config.intermediate_size,
        config.hidden_act,
        config.norm_eps,
        config.max_model_len,
    )


@pytest.mark.parametrize(
    ("model_type", "declared", "expected"),
    [
        ("bert", None, 2),
        ("bert", 1, 1),
        ("roberta", 1, 1),
        ("deberta-v2", 0, 0),
        ("mpnet", None, 0),
    ],
)
def test_token_types_are_declared_or_the_familys_own(
    model_type: str, declared: int | None, expected: int, tmp_path: Path
) -> None:
    config = {**BERT, "model_type": model_type, "type_vocab_size": declared}
    assert load(tmp_path, config).token_types == expected


def test_text_model_inside_another_is_found(tmp_path: Path) -> None:
    nested = {key: value for key, value in BERT.items() if key != "architectures"}
    config = load(tmp_path, {"architectures": ["SomeVLModel"], "text_config": nested})
    assert (config.hidden_size, config.model_type) == (16, "bert")
    assert config.hf["architectures"] == ["SomeVLModel"]


def test_architecture_defaults_to_the_plain_encoder(tmp_path: Path) -> None:
    without = {key: value for key, value in BERT.items() if key != "architectures"}
    assert load(tmp_path, without).architecture == "BertModel"
    with pytest.raises(ModelLoadError, match=r"model_type 'strange'"):
        load(tmp_path, {**without, "model_type": "strange"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size, dim, d_model"),
        ({"hidden_size": 0}, "hidden_size must be a positive integer, not 0"),
        ({"num_attention_heads": "12"}, "not '12'"),
        ({"vocab_size": True}, "not True"),
        ({"layer_norm_eps": -1.0}, "must be a positive number"),
        ({"hidden_act": "strange"}, "Unknown activation 'strange'"),
        ({"hidden_act": 3}, "hidden_act must be a string"),
        ({"architectures": "BertModel"}, "architectures must be a list"),
        ({"problem_type": "guess"}, "problem_type 'guess'"),
    ],
)
def test_wrong_field_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path, {**BERT, **change})


def test_positions_that_padding_leaves_none_of_are_refused(tmp_path: Path) -> None:
    roberta = {**BERT, "model_type": "roberta", "pad_token_id": 511}
    with pytest.raises(ModelLoadError, match="512 leaves none after pad_token_id 511"):
        load(tmp_path, roberta)


def test_null_says_that_a_field_is_absent_but_for_windows(tmp_path: Path) -> None:
    config = load(tmp_path, {**BERT, "pad_token_id": None, "sliding_window": None})
    assert "pad_token_id" not in config.hf
    assert config.hf["sliding_window"] is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_hidden_layers", 10**12, "num_hidden_layers must be at most 1024"),
        ("max_position_embeddings", "x", "max_position_embeddings must be an integer of at least"),
        ("rope_theta", float("inf"), "rope_theta must be a finite number, not inf"),
        ("norm_bias", "yes", "norm_bias must be true or false, not 'yes'"),
        ("layer_types", 3, "layer_types must be a list of names or numbers, not 3"),
        ("pos_att_type", [1], "pos_att_type must be a string or a list of them"),
        ("task_instructions", "q", "task_instructions must be a map, not 'q'"),
        ("text_config", {"vocab_size": 0}, "vocab_size must be a positive integer, not 0"),
        ("quantization_config", {"quant_method": "gptq"}, "quantization_config .*gptq"),
    ],
)
def test_every_known_field_is_checked(field: str, value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path, {**BERT, field: value})


def test_no_text_encoders_own_configuration_is_refused() -> None:
    """Names are shared by families that a fallback runs, and must have one type in all of them."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kinds = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    checked = 0
    for kind in kinds:
        if kind in CONFIG_MAPPING:
            written = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False))
            assert schema.checked(written)
            checked += 1
    assert checked > 30


def test_what_is_no_file_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(ModelLoadError, match=r"config\.json is not a file"):
        load(tmp_path)


def test_folder_without_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"has no config\.json"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_broken_json_is_named(tmp_path: Path, text: str) -> None:
    put(tmp_path, "config.json", text)
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        load(tmp_path)


def test_length_is_the_smallest_of_all_limits(tmp_path: Path) -> None:
    assert load(tmp_path, BERT).max_model_len == 512
    put(tmp_path, "tokenizer_config.json", {"model_max_length": 300})
    assert load(tmp_path).max_model_len == 300
    put(tmp_path, "tokenizer_config.json", {"model_max_length": 10**30})
    assert load(tmp_path).max_model_len == 512
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    put(tmp_path, "modules.json", [module])
    put(tmp_path, "sentence_roberta_config.json", {"max_seq_length": 200})
    assert load(tmp_path).max_model_len == 200


def test_users_length_may_pass_all_limits_but_the_positions(tmp_path: Path) -> None:
    put(tmp_path, "tokenizer_config.json", {"model_max_length": 300})
    assert load(tmp_path, BERT, max_model_len=512).max_model_len == 512
    assert load(tmp_path, BERT, max_model_len=64).max_model_len == 64
    with pytest.raises(ModelLoadError, match=r"max_model_len=513.*\(512\)") as caught:
        load(tmp_path, BERT, max_model_len=513)
    assert caught.value.param == "max_model_len"


def test_model_without_any_limit_gets_the_documented_one(tmp_path: Path) -> None:
    config = load(tmp_path, {**BERT, "max_position_embeddings": -1})
    assert config.max_model_len == 512


def test_labels_come_in_id_order(tmp_path: Path) -> None:
    classifier = {**BERT, "architectures": ["BertForSequenceClassification"]}
    names = {str(i): f"name{i}" for i in (2, 10, 0, 1, 3, 4, 5, 6, 7, 8, 9)}
    config = load(tmp_path, {**classifier, "id2label": names, "problem_type": "regression"})
    assert config.labels == tuple(f"name{i}" for i in range(11))
    assert (config.num_labels, config.problem_type) == (11, "regression")
    assert load(tmp_path, classifier).labels == ("LABEL_0", "LABEL_1")
    assert load(tmp_path, {**classifier, "num_labels": 1}).labels == ("LABEL_0",)
    assert load(tmp_path, {**BERT, "id2label": {"0": "x"}}).num_labels == 0


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Sequence", "Token"])
def test_saved_classifiers_have_their_number_of_labels(
    tmp_path: Path, kind: str, count: int
) -> None:
    import transformers

    transformers.BertConfig(
        architectures=[f"BertFor{kind}Classification"], num_labels=count
    ).save_pretrained(tmp_path)
    assert load(tmp_path).num_labels == count


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "gaps"),
        ({"id2label": {"x": "a"}}, "not a map of ids"),
        ({"id2label": {"0": "a"}, "num_labels": 2}, "num_labels is 2"),
    ],
)
def test_labels_that_contradict_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path, {**BERT, "architectures": ["XForTokenClassification"], **change})


def test_early_models_keep_the_transformer_in_a_folder(tmp_path: Path) -> None:
    kinds = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    put(
        tmp_path,
        "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(kinds)
        ],
    )
    put(tmp_path, "0_Transformer/config.json", BERT)
    put(tmp_path, "0_Transformer/sentence_bert_config.json", {"max_seq_length": 77})
    put(tmp_path, "1_Pooling/config.json", {"pooling_mode_cls_token": True})
    config = load(tmp_path)
    assert config.path == tmp_path
    assert config.transformer_path == tmp_path / "0_Transformer"
    assert (config.max_model_len, config.pooler.modes) == (77, ("cls",))


def test_each_activation_name_has_a_function() -> None:
    from cenote.kernels.activation import FUNCTIONS

    names = {activations.from_hf(name) for name in activations._HF_NAMES}
    paths = (f"torch.nn.modules.activation.{name}" for name in activations._TORCH_CLASSES)
    names |= {activations.from_class_path(path, where="test") for path in paths}
    assert names <= FUNCTIONS.keys()


def test_activation_names_mean_the_reference_functions() -> None:
    import torch
    from transformers.activations import ACT2FN

    from cenote.kernels.activation import FUNCTIONS

    x = torch.linspace(-6, 6, 401)
    for name in activations._HF_NAMES.keys() - {"swiglu", "geglu"}:
        ours = FUNCTIONS[activations.from_hf(name)](x)
        torch.testing.assert_close(ours, ACT2FN[name](x), atol=2e-6, rtol=0, msg=name)
