"""A listwise reranker (Jina v3's form) against transformers' hidden states and its own formula."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_rerankers import SETTINGS
from tiny import MakeTiny, edit_config
from torch.nn import functional as F

from cenote import LLM
from cenote.cli.references import kind_of
from cenote.errors import InvalidRequest

MARKERS = ["<|embed_token|>", "<|rerank_token|>"]
DOCUMENTS = [
    "Paris is in France",
    "nothing",
    "a long text " * 9,
    "Ünïcode 漢字",
    "<|embed_token|>x",
]
SYSTEM = (
    "You are a search relevance expert who can determine a ranking of the passages based on how "
    "relevant they are to the query. If the query is a question, how relevant a passage is depends "
    "on how well it answers the question. If not, try to analyze the intent of the query and "
    "assess how well each passage satisfies the intent. If an instruction is provided, you should "
    "follow the instruction when determining the ranking."
)


@pytest.fixture
def ranker(make_tiny: MakeTiny, tmp_path: Path) -> Path:
    """A random Qwen3 with a projector, in the release's form."""
    body = make_tiny("Qwen3Model", "bpe", **SETTINGS)
    folder = shutil.copytree(body, tmp_path / "ranker")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([*MARKERS, "<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    tensors = {f"model.{k}": v for k, v in load_file(body / "model.safetensors").items()}
    tensors |= {
        "projector.0.weight": torch.randn(16, 32),
        "projector.2.weight": torch.randn(512, 16),
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    edit_config(folder, architectures=["JinaForRanking"])
    return folder


def vectors(
    folder: Path, body: Path, query: str, documents: Sequence[str], extra: str = ""
) -> torch.Tensor:
    """Projected rows at the markers of one prompt, the query's last."""
    documents = [document.replace(MARKERS[0], "") for document in documents]
    passages = "\n".join(
        f'<passage id="{i}">\n{text}{MARKERS[0]}\n</passage>' for i, text in enumerate(documents)
    )
    prompt = (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nI will provide you with "
        f"{len(documents)} passages, each indicated by a numerical identifier. Rank the passages "
        f"based on their relevance to query: {query}\n{extra}{passages}\n<query>\n{query}"
        f"{MARKERS[1]}\n</query><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([tokenizer(prompt).input_ids])
    wanted = torch.isin(ids[0], torch.tensor(tokenizer.convert_tokens_to_ids(MARKERS)))
    model = transformers.AutoModel.from_pretrained(body).eval()
    weights = load_file(folder / "model.safetensors")
    with torch.inference_mode():
        rows = model(input_ids=ids).last_hidden_state[0][wanted]
        return (rows @ weights["projector.0.weight"].T).relu() @ weights["projector.2.weight"].T


def test_scores_are_cosines_at_the_markers(ranker: Path, kernels: str, make_tiny: MakeTiny) -> None:
    body = make_tiny("Qwen3Model", "bpe", **SETTINGS)
    rows = vectors(ranker, body, "where?", DOCUMENTS)
    told = vectors(ranker, body, "where?", DOCUMENTS[:2], "<instruct>\nFind\n</instruct>\n")
    with LLM(str(ranker), dtype="float32", kernels=kernels, threads=1) as llm:
        assert llm.score_kind == "listwise"
        ours = [item.score for item in llm.score("where?", DOCUMENTS)]
        own = [item.score for item in llm.score("where?", DOCUMENTS[:2], instruction="Find")]
        ranking = llm.rerank("where?", DOCUMENTS, top_n=2)
        with pytest.raises(InvalidRequest, match="max_tokens_per_doc"):
            llm.score("where?", DOCUMENTS, truncate_prompt_tokens=50)
    expected = F.cosine_similarity(rows[:-1], rows[-1:])
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    np.testing.assert_allclose(own, F.cosine_similarity(told[:-1], told[-1:]), atol=1e-5)
    assert ranking.results[0].index == int(expected.argmax())


def test_verify_says_that_it_has_no_reference(ranker: Path) -> None:
    with (
        LLM(str(ranker), dtype="float32", threads=1) as llm,
        pytest.raises(InvalidRequest, match="nothing to compare JinaForRanking with"),
    ):
        kind_of(llm)


def test_documents_that_do_not_fit_go_into_further_prompts(
    ranker: Path, make_tiny: MakeTiny
) -> None:
    body = make_tiny("Qwen3Model", "bpe", **SETTINGS)
    blocks = [vectors(ranker, body, "q", DOCUMENTS[:4]), vectors(ranker, body, "q", DOCUMENTS[4:])]
    weights = [(1 + F.cosine_similarity(rows[:-1], rows[-1:]).max()) / 2 for rows in blocks]
    total = sum(weight * rows[-1] for weight, rows in zip(weights, blocks, strict=True))
    documents = torch.cat([rows[:-1] for rows in blocks])
    expected = F.cosine_similarity(documents, (total / sum(weights))[None])
    tokens = 0
    with LLM(str(ranker), dtype="float32", threads=1) as llm:
        whole = llm.score("q", DOCUMENTS[:4])
        tokens = sum(item.prompt_tokens for item in whole)
    with LLM(str(ranker), dtype="float32", threads=1, max_model_len=tokens + 20) as llm:
        ours = [item.score for item in llm.score("q", DOCUMENTS)]
    np.testing.assert_allclose(ours, expected, atol=1e-5)
