"""Folders in forms that transformers doesn't save, made of tiny ones that it does.

A form takes a source folder and writes the one to be served; its reference reads the source.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers
from heads import Rows, reference_outputs
from reference import Served
from safetensors.torch import load_file, save_file
from test_lfm2 import centred
from tiny import edit_config, trained
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

# A source folder, the folder to write, and the architecture that it is to have.
Form = Callable[[Path, Path, str], None]
SourceReference = Callable[[Served, Rows, Rows | None, Path], list[Tensor]]

WIDTH = 32
# After the tokenizer's own 400; random ids of families that have them are drawn from about there.
MARKS = {"<|embed_token|>": 400, "<|rerank_token|>": 401}


def _random(*shape: int, scale: float = 0.3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * scale


def renamed(source: Path, folder: Path, architecture: str, **changes: Any) -> None:
    """The same checkpoint by another architecture's name."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    edit_config(folder, architectures=[architecture], **changes)


def _with_tensors(source: Path, folder: Path, added: dict[str, Tensor], prefix: str) -> None:
    body = load_file(source / "model.safetensors")
    tensors = {prefix + name: tensor for name, tensor in body.items()} | added
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


PROJECTION = _random(16, WIDTH)


def colbert(source: Path, folder: Path, architecture: str) -> None:
    """Stanford's form: a projection beside the body, and `artifact.metadata`."""
    renamed(source, folder, architecture)
    prefix = "bert." if architecture in ("HF_ColBERT", "ColBERT") else ""
    _with_tensors(source, folder, {"linear.weight": PROJECTION}, prefix)
    (folder / "artifact.metadata").write_text('{"dim": 16, "mask_punctuation": false}')


def projected(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    return [rows @ PROJECTION.T for rows in reference_outputs(served, ids, types, source)]


def static(source: Path, folder: Path, architecture: str) -> None:
    """sentence-transformers' StaticEmbedding; of the source nothing is used."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    table = _random(trained("wordpiece").get_vocab_size(), WIDTH).numpy()
    module = StaticEmbedding(trained("wordpiece"), embedding_weights=table)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))


def looked_up(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    from sentence_transformers import SentenceTransformer

    (module,) = SentenceTransformer(str(served.config.path), device="cpu")
    return [module.embedding.weight.detach()[row] for row in ids]


def both_sides(source: Path, folder: Path, architecture: str) -> None:
    """NVIDIA's form of a Llama that reads to both sides."""
    renamed(source, folder, architecture, pooling="avg")


def unmasked(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    """Llama's rows without its causal mask; its classifier on their mean."""
    classifier = served.model.info.head == "classify"
    name = "AutoModelForSequenceClassification" if classifier else "AutoModel"
    model = getattr(transformers, name).from_pretrained(source).eval()
    found = []
    with torch.inference_mode():
        for row in ids:
            mask = torch.zeros(1, 1, len(row), len(row))
            body = model.model if classifier else model
            rows = body(torch.tensor([row]), attention_mask=mask).last_hidden_state[0]
            found.append(model.score(rows.mean(0)) if classifier else rows)
    return found


def centred_rows(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    """LFM2's rows where convolutions and attention look to both sides."""
    model = transformers.AutoModel.from_pretrained(source).eval()
    found = []
    with torch.inference_mode(), mock.patch.object(Lfm2ShortConv, "forward", centred):
        for row in ids:
            masks = {"full_attention": torch.zeros(1, 1, len(row), len(row)), "conv": None}
            found.append(model(torch.tensor([row]), attention_mask=masks).last_hidden_state[0])
    return found


SCORE = _random(3, WIDTH)


def scored(source: Path, folder: Path, architecture: str) -> None:
    """A decoder with a classifier of its last row, where transformers has no such class."""
    renamed(source, folder, architecture, num_labels=len(SCORE))
    _with_tensors(source, folder, {"score.weight": SCORE}, "model.")


def last_scores(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    return [rows[-1] @ SCORE.T for rows in _body(source, ids)]


def _reward_head(labels: int) -> nn.Sequential:
    head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, labels))
    for parameter in head.parameters():
        parameter.data = _random(*parameter.shape, scale=0.1)
    return head.requires_grad_(False)


def reward(source: Path, folder: Path, architecture: str) -> None:
    """Qwen2's reward heads: two layers on the last row, or on those that end steps."""
    labels = 1 if architecture == "Qwen2ForRewardModel" else 2
    changes = {"num_labels": labels, "id2label": None, "label2id": None}
    renamed(source, folder, architecture, step_tag_id=MARKS["<|rerank_token|>"], **changes)
    head = _reward_head(labels)
    added = {f"score.{name}": tensor for name, tensor in head.state_dict().items()}
    _with_tensors(source, folder, added, "model.")


def last_reward(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    rows = _body(source, ids)
    return [_reward_head(1)(item[-1]) for item in rows]


def step_rewards(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    ends = MARKS["<|rerank_token|>"]
    rows = zip(_body(source, ids), ids, strict=True)
    return [_reward_head(2)(item[torch.tensor(row) == ends]) for item, row in rows]


PROJECTOR = (_random(16, WIDTH), _random(512, 16))


def listwise(source: Path, folder: Path, architecture: str) -> None:
    """Jina Reranker v3's form: a Qwen3 with a projector, and two tokens that mark texts' ends."""
    renamed(source, folder, architecture)
    names = ("projector.0.weight", "projector.2.weight")
    _with_tensors(source, folder, dict(zip(names, PROJECTOR, strict=True)), "model.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(MARKS), special_tokens=True)
    tokenizer.save_pretrained(folder)


def marked(served: Served, ids: Rows, types: Rows | None, source: Path) -> list[Tensor]:
    marks = torch.tensor(list(MARKS.values()))
    rows = zip(_body(source, ids), ids, strict=True)
    ends = [item[torch.isin(torch.tensor(row), marks)] for item, row in rows]
    return [F.linear(F.linear(item, PROJECTOR[0]).relu(), PROJECTOR[1]) for item in ends]


def _body(source: Path, ids: Rows) -> list[Tensor]:
    model = transformers.AutoModel.from_pretrained(source).eval()
    with torch.inference_mode():
        return [model(torch.tensor([row])).last_hidden_state[0] for row in ids]
