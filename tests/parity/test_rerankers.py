"""Language models as rerankers against transformers' logits, found and prompted without a flag."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence import DOCUMENTS, QUERIES
from tiny import MakeTiny, edit_config
from typer.testing import CliRunner

from cenote import LLM
from cenote.cli.main import app
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.processors.prepare import Preparer, TokenPrompt

WORDS = ["yes", "no", "Yes", "0", "1"]
MARKS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
SETTINGS: dict[str, Any] = {
    "vocab_size": 420,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "length": 2048,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {i}\n<Query>: {q}\n<Document>: {d}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
WEB = "Given a web search query, retrieve relevant passages that answer the query"
GEMMA = (
    "<s>A: {q}\nB: {d}\nGiven a query A and a passage B, determine whether the passage contains an "
    "answer to the query by providing a prediction of either 'Yes' or 'No'."
)
MXBAI = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n<|im_start|>user\nquery: {q}\ndocument: {d}\nYou are a search relevance expert "
    "who evaluates how well documents match search queries. For each query-document pair, "
    "carefully analyze the semantic relationship between them, then provide your binary relevance "
    "judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n"
)
MakeReranker = Callable[..., Path]


@pytest.fixture
def make_reranker(make_tiny: MakeTiny, tmp_path: Path) -> MakeReranker:
    """A random language model under a name, with the tokens that rerankers answer with."""

    def make(family: str, name: str, **changes: Any) -> Path:
        folder = tmp_path / name
        shutil.copytree(make_tiny(f"{family}ForCausalLM", "bpe", **SETTINGS), folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        tokenizer.add_tokens(WORDS)
        tokenizer.add_tokens(MARKS, special_tokens=True)
        tokenizer.save_pretrained(folder)
        edit_config(folder, **changes)
        return folder

    return make


def logits(folder: Path, prompts: Sequence[str], tokens: Sequence[str]) -> torch.Tensor:
    """The reference's logits of `tokens` after each prompt, `[prompts, tokens]`."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    wanted = tokenizer.convert_tokens_to_ids(list(tokens))
    found = []
    with torch.inference_mode():
        for prompt in prompts:
            ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
            found.append(model(input_ids=ids).logits[0, -1, wanted])
    return torch.stack(found)


def scores(folder: Path, **arguments: Any) -> list[float]:
    settings = arguments.pop("settings", {})
    with LLM(str(folder), dtype="float32", threads=1, **settings) as llm:
        assert llm.score_kind == "cross_encoder"
        return [item.score for item in llm.score(QUERIES, DOCUMENTS, **arguments)]


def filled(template: str, **more: str) -> list[str]:
    pairs = zip(QUERIES, DOCUMENTS, strict=True)
    return [template.format(q=q, d=d, **more) for q, d in pairs]


@pytest.mark.parametrize(
    ("family", "name", "prompt", "tokens"),
    [
        ("Qwen3", "Qwen3-Reranker-0.6B", QWEN3, ["no", "yes"]),
        ("Qwen2", "mxbai-rerank-base-v2", MXBAI, ["0", "1"]),
        ("Gemma", "bge-reranker-v2-gemma", GEMMA, ["Yes"]),
    ],
)
def test_a_reranker_known_by_name_scores_as_its_card_does(
    family: str,
    name: str,
    prompt: str,
    tokens: list[str],
    kernels: str,
    make_reranker: MakeReranker,
) -> None:
    folder = make_reranker(family, name)
    expected = logits(folder, filled(prompt, i=WEB), tokens)
    share = expected.softmax(-1)[:, 1] if len(tokens) == 2 else expected[:, 0].sigmoid()
    ours = scores(folder, settings={"kernels": kernels})
    np.testing.assert_allclose(ours, share, atol=1e-5, rtol=1e-5)


# The pieces that the releases' own code makes tokens of one by one, then joins: Qwen3-Reranker's
# card, mxbai_rerank_v2.py, FlagEmbedding's BaseLLMReranker.
PIECES = {
    ("Qwen3", "Qwen3-Reranker-0.6B"): (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        'and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n",
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: who lives in Rome?\n<Document>: Ann does.",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
    ("Qwen2", "mxbai-rerank-base-v2"): (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\n<|im_start|>user\n",
        "query: who lives in Rome?",
        "\n",
        "document: Ann does.",
        "\n",
        "You are a search relevance expert who evaluates how well documents match search queries. "
        "For each query-document pair, carefully analyze the semantic relationship between them, "
        "then provide your binary relevance judgment (0 for not relevant, 1 for relevant).\n"
        "Relevance:",
        "<|im_end|>\n<|im_start|>assistant\n",
    ),
    ("Gemma", "bge-reranker-v2-gemma"): (
        "<s>",
        "A: who lives in Rome?",
        "\n",
        "B: Ann does.",
        "\n",
        "Given a query A and a passage B, determine whether the passage contains an answer to the "
        "query by providing a prediction of either 'Yes' or 'No'.",
    ),
}


@pytest.mark.parametrize(("family", "name"), PIECES)
def test_the_tokens_are_those_of_the_releases_own_code(
    family: str, name: str, make_reranker: MakeReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[list[int]] = []
    made = Preparer.requests

    def requests(self: Preparer, prompts: Sequence[TokenPrompt], *rest: Any) -> Any:
        fed.extend(prompt.token_ids for prompt in prompts)
        return made(self, prompts, *rest)

    monkeypatch.setattr(Preparer, "requests", requests)
    folder = make_reranker(family, name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pieces = PIECES[family, name]
    with LLM(str(folder), dtype="float32", threads=1) as llm:
        llm.score("who lives in Rome?", "Ann does.")
        llm.score("who lives in Rome?", "Ann does.", truncate_prompt_tokens=len(fed[0]) - 1)
    ids = [tokenizer(piece, add_special_tokens=False).input_ids for piece in pieces]
    assert fed[0] == [one for own in ids for one in own]
    # A cut takes from the document: what comes after it stays, to the last token.
    tail = len(tokenizer(pieces[-1], add_special_tokens=False).input_ids)
    assert len(fed[1]) < len(fed[0])
    assert fed[1][-tail:] == fed[0][-tail:]


@pytest.mark.parametrize(
    ("family", "name"),
    [("Qwen3", "qwen3-reranker-tuned"), ("Gemma", "bge-reranker-v2-gemma")],
)
def test_verify_compares_a_reranker_known_by_name(
    family: str, name: str, make_reranker: MakeReranker
) -> None:
    folder = make_reranker(family, name)
    result = CliRunner().invoke(app, ["verify", str(folder), "--dtype", "float32"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["kind"] == "prompted_reranker"
    assert report["results"]["float32"]["ok"] is True


def test_an_instruction_reaches_the_prompt(make_reranker: MakeReranker) -> None:
    folder = make_reranker("Qwen3", "qwen3-reranker-tuned")
    share = logits(folder, filled(QWEN3, i="Find songs"), ["no", "yes"]).softmax(-1)[:, 1]
    for given in (
        {"instruction": "Find songs"},
        {"chat_template_kwargs": {"instruction": "Find songs"}},
    ):
        np.testing.assert_allclose(scores(folder, **given), share, atol=1e-5)


@pytest.mark.parametrize("difference", [True, False])
def test_config_json_names_the_tokens(difference: bool, make_reranker: MakeReranker) -> None:
    tokens = ["no", "yes"] if difference else ["yes"]
    method = "from_2_way_softmax" if difference else "no_post_processing"
    folder = make_reranker("Qwen3", "own", classifier_from_token=tokens, method=method)
    template = folder / "score.jinja"
    template.write_text("<s>{{ query }} or {{ document }}")
    ours = scores(folder, settings={"score_template": str(template)}, use_activation=False)
    found = logits(folder, filled("<s>{q} or {d}</s>"), tokens)
    expected = found[:, 1] - found[:, 0] if difference else found[:, 0]
    np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-5)


def test_a_cut_takes_from_the_document_and_leaves_the_question(
    make_reranker: MakeReranker,
) -> None:
    folder = make_reranker("Qwen3", "Qwen3-Reranker-0.6B")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    short = QWEN3.format(i=WEB, q="who?", d="one two three")
    keep = len(tokenizer(short, add_special_tokens=False).input_ids)
    with LLM(str(folder), dtype="float32") as llm:
        (cut,) = llm.score("who?", "one two three four five", truncate_prompt_tokens=keep)
        (whole,) = llm.score("who?", "one two three")
        with pytest.raises(InvalidRequest, match="template and the query alone"):
            llm.score("who?", "one two three", truncate_prompt_tokens=20)
    assert cut.truncated
    assert cut.score == pytest.approx(whole.score, abs=1e-6)


def test_the_switch_serves_the_body_or_forces_the_kind(make_reranker: MakeReranker) -> None:
    folder = make_reranker("Qwen3", "Qwen3-Reranker-0.6B")
    with LLM(str(folder), dtype="float32", reranker="off") as llm:
        assert llm.score_kind == "bi_encoder"
    renamed = folder.rename(folder.with_name("renamed"))
    with LLM(str(renamed), dtype="float32") as llm:
        assert llm.score_kind == "bi_encoder"
    share = logits(renamed, filled(QWEN3, i=WEB), ["no", "yes"]).softmax(-1)[:, 1]
    ours = scores(renamed, settings={"reranker": "qwen3"})
    np.testing.assert_allclose(ours, share, atol=1e-5)
    with pytest.raises(ModelLoadError, match="made of Gemma"):
        LLM(str(renamed), reranker="bge-gemma")


def test_a_logit_score_folder_is_the_reference_cross_encoder(make_reranker: MakeReranker) -> None:
    from sentence_transformers import CrossEncoder

    folder = make_reranker("Qwen3", "plain")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    prompts = {"prompts": {"query": "Find it"}, "default_prompt_name": "query"}
    reference = CrossEncoder(str(folder), device="cpu", **prompts)
    saved = folder.with_name("saved")
    reference.save_pretrained(str(saved))
    expected = reference.predict(list(zip(QUERIES, DOCUMENTS, strict=True)))
    np.testing.assert_allclose(scores(saved), expected, atol=1e-5, rtol=1e-5)


def test_prompts_in_parts_and_from_the_prefix_cache_score_alike(
    make_reranker: MakeReranker,
) -> None:
    folder = make_reranker("Qwen3", "Qwen3-Reranker-0.6B")
    prompts = [QWEN3.format(i=WEB, q="who?", d=document) for document in DOCUMENTS]
    share = logits(folder, prompts, ["no", "yes"]).softmax(-1)[:, 1]
    with LLM(str(folder), dtype="float32", threads=1, max_num_batched_tokens=50) as llm:
        for _ in range(2):
            ours = [item.score for item in llm.score("who?", DOCUMENTS)]
            np.testing.assert_allclose(ours, share, atol=1e-5)
