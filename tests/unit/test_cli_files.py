"""Texts in and results out: formats, order, and errors that name the line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from cenote.cli.offline import run_naming_lines, strings
from cenote.cli.texts import Pair, Text, chunks, count_lines, read_pairs, read_texts
from cenote.cli.workload import make_texts
from cenote.cli.writers import embedding_writer
from cenote.errors import InvalidRequest
from cenote.outputs import Embedding


def texts_of(file: Path, field: str = "text") -> list[str]:
    return [item.text for item in read_texts((), file, field)]


def embedding(first: float) -> Embedding:
    return Embedding(np.array([first, 0.5], np.float32), prompt_tokens=3, truncated=first > 1)


def test_arguments_are_texts_in_order() -> None:
    assert [item.text for item in read_texts(("b", "a"), None, "text")] == ["b", "a"]


def test_a_text_file_is_one_text_a_line_and_empty_lines_are_texts(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_bytes("é\r\n\nlast".encode())
    assert texts_of(file) == ["é", "", "last"]
    assert count_lines(file) == 3


def test_jsonl_takes_strings_and_a_named_field(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('"one"\n{"body": "two", "id": 1}\n')
    assert texts_of(file, "body") == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", ["not JSON"]),
        (b'{"id": 1}', ["no field 'text'", "['id']", "--field"]),
        (b'{"text": 1}', ["expected a string, not int"]),
        (b"\xff", ["not UTF-8"]),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, words: list[str]) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'"fine"\n' + line + b"\n")
    with pytest.raises(InvalidRequest) as error:
        texts_of(file)
    for word in [f"line 2 of {file}", *words]:
        assert word in error.value.message


def test_stdin_is_read_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SimpleNamespace(buffer=io.BytesIO(b"a\nb\n"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", pipe)
    assert [item.place for item in read_texts((), None, "text")] == [
        "line 1 of stdin",
        "line 2 of stdin",
    ]


def test_nothing_to_read_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(InvalidRequest, match="--input FILE"):
        list(read_texts((), None, "text"))


def test_chunks_keep_order_and_size() -> None:
    items = [Text(str(n), "") for n in range(5)]
    assert [len(chunk) for chunk in chunks(iter(items), 2)] == [2, 2, 1]
    assert [item for chunk in chunks(iter(items), 2) for item in chunk] == items


def test_the_text_that_is_refused_is_named() -> None:
    def run(texts: Sequence[Text]) -> Sequence[str]:
        if "bad" in strings(texts):
            raise InvalidRequest("too long", param="input")
        return strings(texts)

    texts = [Text("bad" if n == 6 else "ok", f"line {n} of f") for n in range(1, 10)]
    with pytest.raises(InvalidRequest, match=r"^line 6 of f: too long$"):
        run_naming_lines(texts, run)
    assert run_naming_lines(texts[:5], run) == ["ok"] * 5


def test_pairs_are_read_by_their_fields(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"q": "a", "d": "b"}\n{"q": "c"}\n')
    pairs = read_pairs(file, "q", "d")
    assert next(pairs) == Pair("a", "b", f"line 1 of {file}")
    with pytest.raises(
        InvalidRequest, match=rf"line 2 of {file}: no field 'd'.*Choose one with --document-field"
    ):
        next(pairs)
    with pytest.raises(InvalidRequest, match="Can't read"):
        read_pairs(tmp_path / "none.jsonl", "q", "d")


def test_jsonl_output_has_one_object_for_each_text(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with embedding_writer(out) as write:
        write([embedding(0), embedding(1)])
        write([embedding(2)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert rows[2] == {"index": 2, "embedding": [2, 0.5], "prompt_tokens": 3, "truncated": True}


def test_npy_and_parquet_hold_the_same_vectors(tmp_path: Path) -> None:
    for name in ("out.npy", "out.parquet"):
        with embedding_writer(tmp_path / name) as write:
            write([embedding(0), embedding(1)])
            write([embedding(2)])
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["index"].to_pylist() == [0, 1, 2]
    assert table["truncated"].to_pylist() == [False, False, True]
    matrix = np.load(tmp_path / "out.npy")
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix, np.array(table["embedding"].to_pylist(), np.float32))


def test_no_texts_give_an_empty_file(tmp_path: Path) -> None:
    with embedding_writer(tmp_path / "out.npy"):
        pass
    assert np.load(tmp_path / "out.npy").shape == (0, 0)


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with embedding_writer(tmp_path / "out.npy") as write:
            write([embedding(0)])
            raise InvalidRequest("stop")

    with pytest.raises(InvalidRequest):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []


def test_bench_texts_are_the_same_every_time_and_differ_in_length() -> None:
    texts = make_texts("passages", 50)
    assert texts == make_texts("passages", 50)
    assert len({len(text) for text in texts}) > 40
    assert max(len(text.split()) for text in make_texts("short", 100)) < 30
