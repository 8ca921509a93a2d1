"""Load on a running server: many clients that each send one request after another.

One thread and nothing decoded before the clock stops: the clients must cost less than the server,
which often shares their processor cores. It knows the OpenAI form of `/v1/embeddings`, so it can
measure any server that speaks it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cenote.cli.connection import Connection, base_url, json_headers
from cenote.errors import CenoteError, EngineUnavailable

REQUEST_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Load:
    """What a run saw. Latencies in seconds, one for each request."""

    seconds: float
    texts: int
    tokens: int
    latencies: list[float]
    vectors: NDArray[np.float32]


def served_model(url: str) -> str:
    """The first model that a server lists."""
    address = f"{base_url(url)}/v1/models"
    request = urllib.request.Request(address, headers=json_headers())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except urllib.error.HTTPError as error:
        raise CenoteError(f"{address}: {error.code} {error.read(300).decode()}") from error
    except OSError as error:
        raise _silent(url, error) from error


def run_load(
    url: str, texts: Sequence[str], *, clients: int, batch: int = 1, model: str | None = None
) -> Load:
    """Embeds all texts over HTTP, `batch` in a request, `clients` requests at a time.

    Raises `EngineUnavailable` where nothing answers and `CenoteError` for any answer but 200.
    """
    name = model or served_model(url)
    bodies = [_body(name, texts[at : at + batch]) for at in range(0, len(texts), batch)]
    try:
        seconds, latencies, contents = asyncio.run(_send_all(url, bodies, clients))
    except (OSError, EOFError, TimeoutError) as error:
        raise _silent(url, error) from error
    answers = [json.loads(content) for content in contents]
    vectors = [
        np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
        for answer in answers
        for item in answer["data"]
    ]
    tokens = sum(answer["usage"]["prompt_tokens"] for answer in answers)
    return Load(seconds, len(texts), tokens, latencies, np.stack(vectors))


def percentiles(latencies: Sequence[float]) -> Iterator[tuple[str, float]]:
    """p50, p95 and p99 in milliseconds."""
    for name, value in zip(
        ("p50", "p95", "p99"), np.percentile(latencies, (50, 95, 99)), strict=True
    ):
        yield f"{name}_ms", round(float(value) * 1e3, 3)


async def _send_all(
    url: str, bodies: Sequence[bytes], clients: int
) -> tuple[float, list[float], list[bytes]]:
    """Seconds in all, and each request's latency and answer, in the order of `bodies`."""
    latencies = [0.0] * len(bodies)
    contents = [b""] * len(bodies)
    waiting = iter(range(len(bodies)))

    async def client() -> None:
        connection = await Connection.open(url, "/v1/embeddings")
        try:
            for at in waiting:
                sent = time.perf_counter()
                reply = await asyncio.wait_for(connection.post(bodies[at]), REQUEST_SECONDS)
                latencies[at] = time.perf_counter() - sent
                if reply.status != 200:
                    shown = reply.content[:300].decode()
                    raise CenoteError(f"{connection.address}: {reply.status} {shown}")
                contents[at] = reply.content
        finally:
            connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(min(clients, len(bodies)))))
    return time.perf_counter() - began, latencies, contents


def _body(model: str, texts: Sequence[str]) -> bytes:
    return json.dumps(
        {
            "model": model,
            "input": list(texts),
            "encoding_format": "base64",
            "truncate_prompt_tokens": -1,
        }
    ).encode()


def _silent(url: str, error: BaseException) -> EngineUnavailable:
    return EngineUnavailable(f"No answer from {url} ({error}). Start one with: cenote serve")
