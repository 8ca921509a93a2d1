"""Load on a running server: many clients that each send one request after another.

Only the standard library: a bench must not need more than the product. It knows the OpenAI form of
`/v1/embeddings`, so it can measure any server that speaks it.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from cenote.config import env
from cenote.errors import CenoteError, EngineUnavailable


@dataclass(frozen=True, slots=True)
class Load:
    """What a run saw. Latencies in seconds, one for each request."""

    seconds: float
    texts: int
    tokens: int
    latencies: list[float]
    vectors: NDArray[np.float32]


class _Server:
    """One keep-alive connection."""

    def __init__(self, url: str, timeout: float) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._url = url
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        self._headers = {"Content-Type": "application/json"}
        if key := env.API_KEY.read():
            self._headers["Authorization"] = f"Bearer {key.split(',')[0].strip()}"

    def call(self, method: str, path: str, body: object = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, self._path + path, data, self._headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except OSError as error:
            raise EngineUnavailable(
                f"No answer from {self._url} ({error}). Start one with: cenote serve"
            ) from error
        if answer.status != 200:
            raise CenoteError(f"{self._url}{path}: {answer.status} {content[:300].decode()}")
        return dict(json.loads(content))


def served_model(url: str) -> str:
    """The first model that a server lists."""
    models = _Server(url, timeout=10).call("GET", "/v1/models")["data"]
    return str(models[0]["id"])  # type: ignore[index]


def run_load(
    url: str, texts: Sequence[str], *, clients: int, batch: int = 1, model: str | None = None
) -> Load:
    """Embeds all texts over HTTP, `batch` in a request, `clients` requests at a time.

    Raises `EngineUnavailable` where nothing answers and `CenoteError` for any answer but 200.
    """
    name = model or served_model(url)
    requests = [list(texts[at : at + batch]) for at in range(0, len(texts), batch)]
    local = threading.local()

    def send(batch_of_texts: list[str]) -> tuple[float, int, list[NDArray[np.float32]]]:
        if not hasattr(local, "server"):
            local.server = _Server(url, timeout=600)
        body = {
            "model": name,
            "input": batch_of_texts,
            "encoding_format": "base64",
            "truncate_prompt_tokens": -1,
        }
        began = time.perf_counter()
        answer = local.server.call("POST", "/v1/embeddings", body)
        took = time.perf_counter() - began
        vectors = [
            np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in answer["data"]
        ]
        return took, answer["usage"]["prompt_tokens"], vectors

    with ThreadPoolExecutor(clients) as pool:
        began = time.perf_counter()
        done = list(pool.map(send, requests))
        seconds = time.perf_counter() - began
    return Load(
        seconds=seconds,
        texts=len(texts),
        tokens=sum(tokens for _, tokens, _ in done),
        latencies=[took for took, _, _ in done],
        vectors=np.stack([vector for _, _, vectors in done for vector in vectors]),
    )


def percentiles(latencies: Sequence[float]) -> Iterator[tuple[str, float]]:
    """p50, p95 and p99 in milliseconds."""
    for name, value in zip(
        ("p50", "p95", "p99"), np.percentile(latencies, (50, 95, 99)), strict=True
    ):
        yield f"{name}_ms", round(float(value) * 1e3, 3)
