"""Static embeddings against sentence-transformers' StaticEmbedding, in each form of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import TEXTS
from safetensors.torch import save_file
from tiny import trained

from cenote import LLM
from cenote.errors import InvalidRequest, ModelLoadError

DIM = 24
LONG = "the quick brown fox " * 100


def reference(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def saved(folder: Path, *, normalize: bool) -> Path:
    """A model as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts: list[Any] = [modules.StaticEmbedding(trained("wordpiece"), embedding_dim=DIM)]
    if normalize:
        parts.append(modules.Normalize())
    SentenceTransformer(modules=parts, device="cpu").save(str(folder))
    return folder


def model2vec(folder: Path, *tensors: str, normalize: bool = True) -> Path:
    """A folder as Model2Vec saves it: a table of fewer rows than tokens, if it has a mapping."""
    tokenizer = trained("wordpiece")
    tokens = tokenizer.get_vocab_size()
    random = torch.Generator().manual_seed(2)
    rows = tokens // 3 if "mapping" in tensors else tokens
    weights = {"embeddings": torch.randn(rows, DIM, generator=random)}
    if "mapping" in tensors:
        weights["mapping"] = torch.randint(rows, (tokens,), generator=random)
    if "weights" in tensors:
        weights["weights"] = torch.rand(tokens, generator=random)
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": normalize}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kernels", ["torch", "auto"])
def test_a_saved_module_gives_the_references_vectors(
    tmp_path: Path, kernels: str, normalize: bool
) -> None:
    folder = saved(tmp_path, normalize=normalize)
    texts = [*TEXTS, LONG]
    with LLM(str(folder), kernels=kernels, threads=1) as llm:
        assert llm.ready.max_model_len == 8192
        ours = [item.embedding for item in llm.embed(texts)]
        alone = [llm.embed(text)[0].embedding for text in texts]
    np.testing.assert_allclose(ours, reference(folder).encode(texts), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours, alone)


@pytest.mark.parametrize("tensors", [(), ("mapping",), ("weights",), ("mapping", "weights")])
def test_model2vec_folders_give_the_references_vectors(
    tmp_path: Path, tensors: tuple[str, ...]
) -> None:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    folder = model2vec(tmp_path, *tensors)
    module = StaticEmbedding.load(str(folder))
    expected = module(module.preprocess(list(TEXTS)))["sentence_embedding"]
    expected = torch.nn.functional.normalize(expected).detach().numpy()
    with LLM(str(folder), dtype="bfloat16", threads=1) as llm:
        ours = [item.embedding for item in llm.embed(TEXTS)]
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_normalising_follows_the_folders_own_word(tmp_path: Path) -> None:
    with LLM(str(model2vec(tmp_path, normalize=False)), threads=1) as llm:
        (item,) = llm.embed("the quick brown fox")
    assert abs(np.linalg.norm(item.embedding) - 1) > 0.01


def test_a_text_without_tokens_is_refused(tmp_path: Path) -> None:
    with (
        LLM(str(model2vec(tmp_path)), threads=1) as llm,
        pytest.raises(InvalidRequest, match="no tokens"),
    ):
        llm.embed("")


def test_a_table_that_is_missing_or_contradicts_is_refused(tmp_path: Path) -> None:
    folder = model2vec(tmp_path, "mapping")
    bad = {"embeddings": torch.randn(9, DIM), "mapping": torch.zeros(5).long()}
    save_file({**bad, "weights": torch.ones(6)}, folder / "model.safetensors")
    with pytest.raises(ModelLoadError, match="differ in length"):
        LLM(str(folder))
    save_file({"other": torch.zeros(2, 2)}, folder / "model.safetensors")
    with pytest.raises(ModelLoadError, match="expected one table"):
        LLM(str(folder))
