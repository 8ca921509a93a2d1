"""Checkpoints that packages ship in other forms, as folders of safetensors.

ONNX graphs (float32 and 4-bit), pickles read as bare tensors, GGUF. What came out is held to the
original where that can run: see `__main__`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

from benchmarks.quality.data import Data
from cenote.loader.hub import resolve

# Atoms in brackets, two-letter atoms, rings of two digits, then single signs, as the models learnt
# them (Schwaller et al. 2019, doi.org/10.1021/acscentsci.9b00576).
SMILES = r"\[[^\]]+\]|Br|Cl|>>|%\(\d{3}\)|%\d{2}|[BCNOSPFIbcnosp]|[()|.=#+\\/:~@?>*$\-]|\d"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def paraphrase_minilm(data: Data, folder: Path) -> None:
    """paraphrase-MiniLM-L3-v2 out of a float32 ONNX graph, with MiniLM's tokenizer and modules.

    A matrix has lost its name in the graph, but the bias that is added to its product has not.
    """
    source = resolve("minilm", None).folder
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    graph, arrays = _graph(data.find("paraphrase-MiniLM-L3-v2.onnx"))
    prefix = "model.0.auto_model."
    tensors = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    adds = {name: node for node in graph.node if node.op_type == "Add" for name in node.input}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            (bias,) = (n for n in adds[node.output[0]].input if n.startswith(prefix))
            name = bias.removeprefix(prefix).removesuffix("bias") + "weight"
            tensors[name] = arrays[node.input[1]].T
    _save(tensors, folder)
    _edit(folder / "config.json", num_hidden_layers=3)


def rampart(data: Data, folder: Path) -> None:
    """A recogniser of personal data out of a 4-bit ONNX graph: w = (q - zero) · scale, by block."""
    path = data.find("rampart/onnx/model_q4.onnx")
    source = path.parents[1]
    folder.mkdir(parents=True)
    for name in ("config.json", *TOKENIZER):
        shutil.copy(source / name, folder / name)
    graph, arrays = _graph(path)
    tensors = {
        name: array
        for name, array in arrays.items()
        if name.startswith(("bert.", "classifier.")) and array.dtype == np.float32
    }
    for node in graph.node:
        if node.op_type == "MatMulNBits":
            name = node.name.strip("/").replace("/MatMul_Q4", "").replace("/", ".")
            tensors[f"{name}.weight"] = _four_bits(node, arrays)
    for part in ("word", "token_type", "position"):
        name = f"bert.embeddings.{part}_embeddings.weight"
        zero, scale = (
            arrays[f"{name}_{kind}"].astype(np.float32) for kind in ("zero_point", "scale")
        )
        tensors[name] = (arrays[f"{name}_quantized"].astype(np.float32) - zero) * scale
    _save({name: a for name, a in tensors.items() if not name.endswith("_scale")}, folder)


def _four_bits(node: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The matrix `[out, in]` of ONNX Runtime's MatMulNBits: two numbers a byte, the low first."""
    sizes = {item.name: item.i for item in node.attribute}
    rows, width, block = sizes["N"], sizes["K"], sizes["block_size"]
    packed, scales = arrays[node.input[1]], arrays[node.input[2]].reshape(rows, -1, 1)
    blocks = scales.shape[1]
    numbers = _nibbles(packed).reshape(rows, blocks, block)
    zeros = np.full((1, 1, 1), 8, np.float32)
    if len(node.input) > 3 and node.input[3]:
        zeros = _nibbles(arrays[node.input[3]]).reshape(rows, -1)[:, :blocks, None]
    whole: NDArray[np.float32] = ((numbers - zeros) * scales).astype(np.float32)
    return whole.reshape(rows, -1)[:, :width]


def _nibbles(packed: NDArray[Any]) -> NDArray[np.float32]:
    return np.stack([packed & 15, packed >> 4], axis=-1).astype(np.float32)


def reaction_classifier(data: Data, folder: Path) -> None:
    """rxnfp's BERT of 50 classes of chemical reactions, out of a pickle of tensors."""
    _chemistry(data.find("bert_ft_10k_25s/pytorch_model.bin"), folder, labels=50)


def reaction_mapper(data: Data, folder: Path) -> None:
    """rxnmapper's ALBERT, a masked language model, out of a pickle of tensors."""
    path = data.find("albert_heads_8_uspto_all_1310k/pytorch_model.bin")
    # This release's own heads and an older pooler, which its class has no place for.
    _chemistry(path, folder, left_out=("albert.pooler.", "sop_classifier."))


def _chemistry(
    path: Path, folder: Path, labels: int | None = None, left_out: Sequence[str] = ()
) -> None:
    folder.mkdir(parents=True)
    shutil.copy(path.parent / "config.json", folder)
    if labels is not None:
        names = {f"LABEL_{at}": at for at in range(labels)}
        by_id = {at: name for name, at in names.items()}
        _edit(folder / "config.json", num_labels=labels, id2label=by_id, label2id=names)
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    kept = {n: t for n, t in tensors.items() if not n.startswith(tuple(left_out))}
    _save({name: tensor.numpy() for name, tensor in kept.items()}, folder)
    words = (path.parent / "vocab.txt").read_text("utf-8").splitlines()
    tokenizer = Tokenizer(models.WordLevel({w: at for at, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SMILES), "isolated")
    ends = [("[CLS]", words.index("[CLS]")), ("[SEP]", words.index("[SEP]"))]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        **{f"{role}_token": f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad", "mask")},
    ).save_pretrained(folder)


def smollm2(data: Data, folder: Path) -> None:
    """SmolLM2-135M, a Llama, out of GGUF's 4 bits; transformers does the reading."""
    path = data.find("SmolLM2-135M-Instruct.Q4_1.gguf")
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where)
    # Its numbers are float32 by now, though the library takes what it read to be quantised still.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(folder)


def splade(data: Data, folder: Path) -> None:
    """SPLADE-tiny as it is, without a pickle that lies beside it."""
    source = data.find("cognition/model/model.safetensors").parent
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.pt"))


def _graph(path: Path) -> tuple[Any, dict[str, NDArray[Any]]]:
    """An ONNX graph and its arrays by name."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    return graph, {item.name: numpy_helper.to_array(item) for item in graph.initializer}


def _save(arrays: Mapping[str, NDArray[Any]], folder: Path) -> None:
    tensors: dict[str, Tensor] = {
        n: torch.from_numpy(np.array(a, order="C")) for n, a in arrays.items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}))
