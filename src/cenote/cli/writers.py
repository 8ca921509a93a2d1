"""Where a command's results go: JSON lines, a NumPy file or a Parquet file.

A file appears under its name only when it is complete: until then it is NAME.part. Writers know
rows, not models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from cenote.errors import InvalidRequest
from cenote.outputs import Embedding


class Format(Protocol):
    """How rows of embeddings become bytes."""

    def write(self, embeddings: list[Embedding]) -> None:
        """Adds the next rows."""

    def finish(self) -> None:
        """Writes what must come last."""


class JsonLines:
    """One JSON object a line: index, embedding, prompt_tokens, truncated."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._index = count()

    def write(self, embeddings: list[Embedding]) -> None:
        for item in embeddings:
            row = {
                "index": next(self._index),
                "embedding": item.embedding.tolist(),
                "prompt_tokens": item.prompt_tokens,
                "truncated": item.truncated,
            }
            self._stream.write(json.dumps(row).encode() + b"\n")

    def finish(self) -> None:
        self._stream.flush()


class NumpyFile:
    """One float32 matrix [texts, dim]; token counts and cuts are not kept."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._rows: list[np.ndarray[Any, np.dtype[np.float32]]] = []

    def write(self, embeddings: list[Embedding]) -> None:
        self._rows.extend(item.embedding for item in embeddings)

    def finish(self) -> None:
        rows = np.stack(self._rows) if self._rows else np.empty((0, 0), np.float32)
        np.save(self._stream, rows)


class ParquetFile:
    """Columns index, embedding (fixed-size float32 list), prompt_tokens, truncated."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._writer: Any = None
        self._count = 0

    def write(self, embeddings: list[Embedding]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        first, self._count = self._count, self._count + len(embeddings)
        vectors = np.stack([item.embedding for item in embeddings]).astype(np.float32)
        flat = pa.array(vectors.reshape(-1))
        table = pa.table(
            {
                "index": pa.array(range(first, first + len(embeddings)), pa.int64()),
                "embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
                "prompt_tokens": pa.array([item.prompt_tokens for item in embeddings], pa.int32()),
                "truncated": pa.array([item.truncated for item in embeddings]),
            }
        )
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._stream, table.schema)
        self._writer.write_table(table)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()


FORMATS: dict[str, type[JsonLines] | type[NumpyFile] | type[ParquetFile]] = {
    ".jsonl": JsonLines,
    ".npy": NumpyFile,
    ".parquet": ParquetFile,
}


@contextmanager
def open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """Stdout, or a file that appears under its name when the block ends without an error.

    Raises `InvalidRequest` where the file can't be written.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = path.with_name(path.name + ".part")
    try:
        stream = part.open("wb")
    except OSError as error:
        raise InvalidRequest(f"Can't write {path}: {error.strerror}.", param="output") from error
    try:
        with stream:
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def embedding_writer(path: Path | None) -> Iterator[Callable[[list[Embedding]], None]]:
    """A function that takes the next embeddings in order; the path's suffix says the format.

    Raises `InvalidRequest` for a suffix that is not in `FORMATS`.
    """
    suffix = ".jsonl" if path is None else path.suffix
    if suffix not in FORMATS:
        raise InvalidRequest(
            f"--output {path}: the name must end in one of {sorted(FORMATS)}.", param="output"
        )
    with open_output(path) as stream:
        rows = FORMATS[suffix](stream)
        yield rows.write
        rows.finish()
