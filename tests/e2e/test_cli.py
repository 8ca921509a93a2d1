"""The commands on real (tiny) models: files in, files out, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from cenote import LLM
from cenote.cli.main import app
from cenote.errors import InvalidRequest

FAST = ["--dtype", "float32", "--threads", "1"]


def cenote(*arguments: str) -> Result:
    """Runs a command that must succeed."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_embed_keeps_the_order_of_a_file_and_gives_what_the_api_gives(
    tiny_bert: Path, tmp_path: Path
) -> None:
    texts = [f"text number {n} " + "word " * (n % 7) for n in range(50)]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    out = tmp_path / "out.parquet"
    model = ["-m", str(tiny_bert), *FAST]
    assert cenote("embed", "-i", str(tmp_path / "in.txt"), "-o", str(out), *model).exit_code == 0
    made = np.array(pq.read_table(out)["embedding"].to_pylist(), np.float32)
    with LLM(str(tiny_bert), dtype="float32", threads=1) as llm:
        expected = np.stack([item.embedding for item in llm.embed(texts)])
    np.testing.assert_allclose(made, expected, atol=1e-6)


def test_a_text_that_is_too_long_is_named_by_its_line(tiny_bert: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("fine\nfine\n" + "word " * 300 + "\nfine\n")
    with pytest.raises(InvalidRequest, match=rf"line 3 of {file}: .* 128 tokens"):
        cenote("embed", "-i", str(file), "-m", str(tiny_bert), *FAST)
    rows = lines(cenote("embed", "-i", str(file), "--truncate", "-m", str(tiny_bert), *FAST))
    assert [row["truncated"] for row in rows] == [False, False, True, False]


def test_encode_gives_class_scores(tiny_classifier: Path) -> None:
    (row,) = lines(cenote("encode", "some text", "-m", str(tiny_classifier), *FAST))
    assert row["label"] in ("negative", "neutral", "positive")
    assert sum(row["probs"]) == pytest.approx(1, abs=1e-5)  # type: ignore[arg-type]


def test_encode_refuses_a_task_and_lists_what_the_model_does(tiny_classifier: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"^Unsupported task: 'embed' .*classify"):
        cenote("encode", "--task", "embed", "some text", "-m", str(tiny_classifier), *FAST)


def test_rerank_prints_the_best_first(tiny_cross_encoder: Path) -> None:
    arguments = ["a question", "one answer", "another one", "a third", "--top-n", "2"]
    rows = lines(cenote("rerank", *arguments, "-m", str(tiny_cross_encoder), *FAST))
    scores = [row["relevance_score"] for row in rows]
    assert len(rows) == 2
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]


def test_score_keeps_the_order_of_pairs_and_of_documents(
    tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    model = ["-m", str(tiny_cross_encoder), *FAST]
    documents = ["one answer", "another one, with more words", "a third"]
    with LLM(str(tiny_cross_encoder), dtype="float32", threads=1) as llm:
        wanted = [item.score for item in llm.score("a question", documents)]
        other = llm.score("something else", "a third", use_activation=False)[0].score
    rows = lines(cenote("score", "a question", *documents, *model))
    assert [row["score"] for row in rows] == pytest.approx(wanted, rel=1e-5)
    pairs = [("a question", text) for text in documents] + [("something else", "a third")]
    file, out = tmp_path / "pairs.jsonl", tmp_path / "scores.jsonl"
    file.write_text("\n".join(json.dumps({"q": query, "d": text}) for query, text in pairs))
    named = ["--query-field", "q", "--document-field", "d", "--no-activation"]
    assert cenote("score", "-i", str(file), *named, "-o", str(out), *model).exit_code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len(pairs)
    assert rows[-1]["score"] == pytest.approx(other, rel=1e-5)


def test_score_names_the_line_of_a_pair_that_is_too_long(
    tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "pairs.jsonl"
    texts = ["fine", "word " * 300, "fine"]
    file.write_text("\n".join(json.dumps({"query": "q", "document": text}) for text in texts))
    with pytest.raises(InvalidRequest, match=rf"line 2 of {file}: .* 128 tokens"):
        cenote("score", "-i", str(file), "-m", str(tiny_cross_encoder), *FAST)
    with pytest.raises(InvalidRequest, match="at least one document"):
        cenote("score", "q", "-m", str(tiny_cross_encoder), *FAST)


@pytest.fixture
def tiny_sparse(make_tiny_bert: Callable[..., Path]) -> Path:
    """A masked LM without sentence-transformers files: SPLADE by default."""
    return make_tiny_bert("BertForMaskedLM")


@pytest.fixture
def tiny_static(minilm_path: Path, tmp_path: Path) -> Path:
    """A random vector for each of MiniLM's tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_path / "tokenizer.json"))
    tokenizer.no_truncation()
    parts = [modules.StaticEmbedding(tokenizer, embedding_dim=16), modules.Normalize()]
    SentenceTransformer(modules=parts, device="cpu").save(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("fixture", "kind"),
    [
        ("minilm_path", "embed"),
        ("tiny_cross_encoder", "cross_encoder"),
        ("tiny_colbert", "late_interaction"),
        ("tiny_sparse", "sparse"),
        ("tiny_static", "embed"),
        ("tiny_classifier", "classify"),
        ("tiny_token_classifier", "token_classify"),
    ],
)
def test_verify_compares_with_the_reference(
    fixture: str, kind: str, request: pytest.FixtureRequest
) -> None:
    folder = str(request.getfixturevalue(fixture))
    result = cenote("verify", folder, "--dtype", "float32")
    assert result.exit_code == 0, result.output
    (report,) = lines(result)
    assert report["kind"] == kind
    assert report["results"]["float32"]["ok"] is True  # type: ignore[index]


def test_verify_fails_where_the_numbers_differ(minilm_path: Path) -> None:
    result = cenote("verify", str(minilm_path), "--dtype", "float32", "--pooling", "cls")
    assert result.exit_code == 1


def test_bench_ends_with_one_json_line(tiny_bert: Path) -> None:
    arguments = ["--workload", "short", "--count", "20", "--rounds", "1", "-m", str(tiny_bert)]
    (report,) = lines(cenote("bench", *arguments, *FAST))
    assert report["texts"] == 20
    assert report["tokens_per_s"] > 0  # type: ignore[operator]
    assert {"single_p50_ms", "single_p95_ms", "single_p99_ms", "kernels", "dtype"} <= set(report)
