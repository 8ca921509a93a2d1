"""A tiny model folder of each form, to be broken: random weights, and a tokenizer of 40 tokens.

But for the one that the library runs, they are made without it, in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

HIDDEN, LAYERS, POSITIONS = 16, 2, 40
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
VOCABULARY = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]


def put(folder: Path, name: str, value: Any) -> None:
    """Writes a JSON file, and the folders above it."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(value))


def put_tensors(folder: Path, name: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Writes random weights of these shapes."""
    random = torch.Generator().manual_seed(0)
    tensors: dict[str, Tensor] = {
        key: torch.randn(shape, generator=random) * 0.3 for key, shape in shapes.items()
    }
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / name)


def _tokenizer(folder: Path) -> None:
    ids = {token: index for index, token in enumerate(VOCABULARY)}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(SPECIAL)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.save(str(folder / "tokenizer.json"))
    roles = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL}
    put(folder, "tokenizer_config.json", {"model_max_length": POSITIONS, **roles})


def _linear(name: str, out: int, inner: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, inner), f"{name}.bias": (out,)}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}


def _bert_shapes(prefix: str = "") -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        **_norm("embeddings.LayerNorm"),
    }
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _linear(f"{layer}.attention.{part}", HIDDEN, HIDDEN)
        shapes |= _norm(f"{layer}.attention.output.LayerNorm")
        shapes |= _linear(f"{layer}.intermediate.dense", 2 * HIDDEN, HIDDEN)
        shapes |= _linear(f"{layer}.output.dense", HIDDEN, 2 * HIDDEN)
        shapes |= _norm(f"{layer}.output.LayerNorm")
    return {prefix + name: shape for name, shape in shapes.items()}


def _config(architecture: str, model_type: str, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": len(VOCABULARY),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": 2 * HIDDEN,
        "max_position_embeddings": POSITIONS,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "pad_token_id": 0,
        **more,
    }


def embedder(folder: Path) -> None:
    """sentence-transformers' form, with a Dense module."""
    put(folder, "config.json", _config("BertModel", "bert", type_vocab_size=2))
    put_tensors(folder, "model.safetensors", _bert_shapes())
    put_tensors(folder, "2_Dense/model.safetensors", _linear("linear", 8, HIDDEN))
    identity = "torch.nn.modules.linear.Identity"
    dense = {"in_features": HIDDEN, "out_features": 8, "activation_function": identity}
    put(folder, "2_Dense/config.json", dense)
    put(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    modules = [
        {"idx": index, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate([*kinds, ("Normalize", "3_Normalize")])
    ]
    put(folder, "modules.json", modules)
    put(folder, "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    prompts = {"prompts": {"query": "q "}, "default_prompt_name": None}
    put(folder, "config_sentence_transformers.json", {**prompts, "similarity_fn_name": "cosine"})


def cross_encoder(folder: Path) -> None:
    """One label, for a pair; weights in two shards."""
    config = _config("BertForSequenceClassification", "bert", id2label={"0": "LABEL_0"})
    put(folder, "config.json", config)
    head = {**_linear("bert.pooler.dense", HIDDEN, HIDDEN), **_linear("classifier", 1, HIDDEN)}
    shards = {"model-1.safetensors": _bert_shapes("bert."), "model-2.safetensors": head}
    for file, shapes in shards.items():
        put_tensors(folder, file, shapes)
    index = {name: file for file, shapes in shards.items() for name in shapes}
    put(folder, "model.safetensors.index.json", {"weight_map": index})


def colbert(folder: Path) -> None:
    """Stanford's form."""
    put(folder, "config.json", _config("HF_ColBERT", "bert"))
    put_tensors(
        folder, "model.safetensors", {**_bert_shapes("bert."), "linear.weight": (4, HIDDEN)}
    )
    markers = {"query_token_id": "[MASK]", "doc_token_id": "[UNK]"}
    put(folder, "artifact.metadata", {"dim": 4, "query_maxlen": 8, "doc_maxlen": 20, **markers})


def decoder(folder: Path) -> None:
    """A Llama with grouped queries and scaled positions."""
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    config = _config("LlamaModel", "llama", num_key_value_heads=1, rope_parameters=rope)
    put(folder, "config.json", {**config, "hidden_act": "silu", "rms_norm_eps": 1e-6})
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (len(VOCABULARY), HIDDEN),
        "norm.weight": (HIDDEN,),
    }
    for index in range(LAYERS):
        layer = f"layers.{index}"
        rows = {"q_proj": HIDDEN, "k_proj": HIDDEN // 2, "v_proj": HIDDEN // 2, "o_proj": HIDDEN}
        for part, out in rows.items():
            shapes[f"{layer}.self_attn.{part}.weight"] = (out, HIDDEN)
        for part in ("gate_proj", "up_proj"):
            shapes[f"{layer}.mlp.{part}.weight"] = (2 * HIDDEN, HIDDEN)
        shapes[f"{layer}.mlp.down_proj.weight"] = (HIDDEN, 2 * HIDDEN)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}.{norm}.weight"] = (HIDDEN,)
    put_tensors(folder, "model.safetensors", shapes)


def static(folder: Path) -> None:
    """Model2Vec's form."""
    put(folder, "config.json", {"model_type": "model2vec", "normalize": True})
    put_tensors(folder, "model.safetensors", {"embeddings": (len(VOCABULARY), HIDDEN)})


def adapted(folder: Path) -> None:
    """The embedder, and a LoRA adapter for it in the folder `adapter`."""
    embedder(folder)
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none"}
    put(folder, "adapter/adapter_config.json", {**settings, "target_modules": ["query"]})
    module = "base_model.model.encoder.layer.0.attention.self.query"
    shapes = {f"{module}.lora_A.weight": (2, HIDDEN), f"{module}.lora_B.weight": (HIDDEN, 2)}
    put_tensors(folder, "adapter/adapter_model.safetensors", shapes)


def fallback(folder: Path) -> None:
    """An architecture that the transformers library runs."""
    import transformers

    config = transformers.RoFormerConfig(**_config("RoFormerModel", "roformer"))
    transformers.RoFormerModel(config).save_pretrained(folder)


FORMS: dict[str, Callable[[Path], None]] = {
    make.__name__: make
    for make in (embedder, cross_encoder, colbert, decoder, static, adapted, fallback)
}


def make_folder(form: str, folder: Path) -> Path:
    """A new folder of that form."""
    folder.mkdir(parents=True)
    FORMS[form](folder)
    _tokenizer(folder)
    return folder
