"""Jina Embeddings v3 and its kin against transformers; adapters against merged weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from heads import HEADS, Rows, assert_head_matches, random_ids, reference_outputs, resave
from reference import (
    BFLOAT16,
    FLOAT32,
    TEXTS,
    Served,
    assert_matches_reference,
    pack,
    serve,
)
from safetensors.torch import load_file, save_file
from tiny import MakeTiny, edit_config
from torch import Tensor
from torch.nn import functional as F

from cenote import LLM
from cenote.errors import InvalidRequest

TASKS = ["retrieval.query", "retrieval.passage", "separation"]
RANK, ALPHA = 4, 2
# Positions count from the padding index + 1 in this family's configurations: 600 tokens.
LONG = {"max_position_embeddings": 602, "type_vocab_size": 1, "initializer_range": 0.2}
HUB: dict[str, Any] = {
    "model_type": "xlm-roberta",
    "position_embedding_type": "rotary",
    "rotary_emb_base": 20000.0,
    "use_flash_attn": True,
    "rope_parameters": None,
}

FLASH_NAMES = {
    "encoder.layer.": "encoder.layers.",
    "embeddings.LayerNorm": "emb_ln",
    "attention.output.dense": "mixer.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "output.LayerNorm": "norm2",
}


@pytest.mark.parametrize("head", HEADS)
def test_every_name_of_the_tensors_and_the_configuration_loads(
    head: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    folder = make_tiny(f"JinaEmbeddingsV3{head}", "unigram", num_labels=3, **LONG)
    assert_head_matches(resave(folder, tmp_path / "new"), "torch")
    hub = tmp_path / "hub"
    shutil.copytree(folder, hub)
    edit_config(hub, architectures=[f"XLMRoberta{head}"], **HUB)
    assert_head_matches(hub, "torch", reference=partial(reference_outputs, folder=folder))


@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification"])
def test_rerankers_with_absolute_positions_are_xlm_roberta_by_other_names(
    head: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    config = {"type_vocab_size": 1, "num_labels": 3, "initializer_range": 0.2}
    folder = make_tiny(f"XLMRoberta{head}", "unigram", **config)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    renamed: dict[str, Tensor] = {}
    weights = load_file(folder / "model.safetensors")
    for name, tensor in weights.items():
        if ".attention.self.query." in name:
            parts = [weights[name.replace("query", part)] for part in ("query", "key", "value")]
            name, tensor = name.replace("attention.self.query", "mixer.Wqkv"), torch.cat(parts)
        for old, new in FLASH_NAMES.items():
            name = name.replace(old, new)
        if ".attention.self." not in name:
            renamed[name] = tensor
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    edit_config(tmp_path, **{**HUB, "position_embedding_type": "absolute"})
    model = getattr(transformers, f"XLMRoberta{head}").from_pretrained(folder).eval()

    def reference(served: Served, ids: Rows, types: Rows | None) -> list[Tensor]:
        with torch.inference_mode():
            return [model(torch.tensor([row]))[0][0] for row in ids]

    assert_head_matches(tmp_path, kernels, reference=reference)


def test_colbert_projects_every_token(kernels: str, make_tiny: MakeTiny, tmp_path: Path) -> None:
    folder = make_tiny("JinaEmbeddingsV3Model", "unigram", **LONG)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(folder / "model.safetensors")
    linear = torch.randn(16, 32, generator=torch.Generator().manual_seed(0))
    save_file({**weights, "linear.weight": linear}, tmp_path / "model.safetensors")
    edit_config(tmp_path, architectures=["HF_ColBERT"], **HUB)
    (tmp_path / "artifact.metadata").write_text('{"dim": 16, "mask_punctuation": false}')
    served = serve(tmp_path, kernels, max_model_len=600)
    ids = random_ids(served)
    rows = reference_outputs(served, ids, None, folder)
    expected = [F.normalize(row @ linear.T, dim=-1) for row in rows]
    assert_matches_reference(served, "token_embed", ids, expected)


def save_adapted(folder: Path, other: Path) -> tuple[Path, list[Path]]:
    """A copy of a folder with adapters in its checkpoint, and one with each of them merged."""
    random = torch.Generator().manual_seed(0)
    base = load_file(folder / "model.safetensors")
    adapted: dict[str, Tensor] = {}
    merged = [dict(base) for _ in TASKS]
    for name, weight in base.items():
        if not name.endswith(".weight") or weight.dim() != 2:
            adapted[f"roberta.{name}"] = weight
            continue
        # A table's halves are the other way round.
        ends = weight.shape if "embeddings" in name else weight.shape[::-1]
        first = (ends[0], RANK) if "embeddings" in name else (RANK, ends[0])
        second = (RANK, ends[1]) if "embeddings" in name else (ends[1], RANK)
        a = torch.randn(len(TASKS), *first, generator=random) * 0.3
        b = torch.randn(len(TASKS), *second, generator=random) * 0.3
        at = f"roberta.{name.removesuffix('.weight')}.parametrizations.weight"
        adapted |= {f"{at}.original": weight, f"{at}.0.lora_A": a, f"{at}.0.lora_B": b}
        change = a @ b if "embeddings" in name else b @ a
        for weights, own in zip(merged, change, strict=True):
            weights[name] = weight + own * ALPHA / RANK
    folders = [other / task for task in (*TASKS, "adapted")]
    for path, weights in zip(folders, (*merged, adapted), strict=True):
        shutil.copytree(folder, path)
        save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    lora = {"lora_adaptations": TASKS, "lora_rank": RANK, "lora_alpha": ALPHA}
    edit_config(folders[-1], architectures=["XLMRobertaModel"], **HUB, **lora)
    return folders[-1], folders[:-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_sequence_of_a_batch_has_its_own_adapter(
    dtype: torch.dtype, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    base = make_tiny("JinaEmbeddingsV3Model", "unigram", **LONG)
    folder, merged = save_adapted(base, tmp_path)
    served = serve(folder, kernels, dtype, max_model_len=600)
    ids = random_ids(served)
    adapters = [None, TASKS[2], TASKS[0], TASKS[0], None, TASKS[1]]
    batch = replace(pack(ids), adapters=adapters)
    with torch.inference_mode():
        together = served.model(batch).split(batch.seq_lens)
        again = [
            served.model(replace(pack([row]), adapters=[name]))
            for row, name in zip(ids, adapters, strict=True)
        ]
    tolerance = FLOAT32 if dtype == torch.float32 else BFLOAT16
    references = dict(zip([*TASKS, None], [*merged, base], strict=True))
    for index, name in enumerate(adapters):
        (expected,) = reference_outputs(served, [ids[index]], None, references[name])
        for found, what in ((together, "in a batch"), (again, "alone")):
            ours, theirs = (F.normalize(item.mean(0), dim=0) for item in (found[index], expected))
            tolerance.check(ours, theirs, f"{name} {what}")


def test_prompts_and_sides_choose_the_adapter(make_tiny: MakeTiny, tmp_path: Path) -> None:
    base = make_tiny("JinaEmbeddingsV3Model", "unigram", **LONG)
    folder, merged = save_adapted(base, tmp_path)
    kinds = ["custom_st.Transformer", "sentence_transformers.models.Normalize"]
    modules = [{"name": str(i), "path": "", "type": kind} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    prompts = {task: f"{task}: " if "retrieval" in task else "" for task in TASKS}
    settings = {"prompts": prompts, "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    texts = list(TEXTS[1:3])
    served = serve(folder, "torch", max_model_len=600)

    def expected(path: Path, prefix: str) -> Tensor:
        rows = reference_outputs(served, served.encode([prefix + t for t in texts]), None, path)
        return F.normalize(torch.stack([row.mean(0) for row in rows]), dim=-1)

    wanted = {task: expected(path, prompts[task]) for task, path in zip(TASKS, merged, strict=True)}
    with LLM(str(folder), dtype="float32", max_model_len=600) as llm:

        def found(**options: Any) -> Tensor:
            return torch.tensor([item.embedding.tolist() for item in llm.embed(texts, **options)])

        for options, vectors in (
            ({"prompt_name": TASKS[2]}, wanted[TASKS[2]]),
            ({"input_type": "query"}, wanted[TASKS[0]]),
            ({"input_type": "document"}, wanted[TASKS[1]]),
            ({"adapter": TASKS[1]}, expected(merged[1], "")),
            ({}, expected(base, "")),
        ):
            torch.testing.assert_close(found(**options), vectors, atol=1e-5, rtol=0)
        scores = [item.score for item in llm.score(texts[0], texts)]
        with pytest.raises(InvalidRequest, match="No adapter is named 'absent'"):
            llm.embed(texts, adapter="absent")
    torch.testing.assert_close(torch.tensor(scores), wanted[TASKS[1]] @ wanted[TASKS[0]][0])
