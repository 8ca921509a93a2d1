"""A server on a real socket: the usual clients, many at once, and clients that go away."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import cohere
import httpx
import numpy as np
import openai
import pytest
from fake_engine import FakeEngine, embedding
from fastapi import FastAPI
from test_server_routes import sample

from cenote.config.server import ServerConfig
from cenote.errors import Overloaded
from cenote.server.app import create_app
from conftest import MakeModel, Serve

KEY = "secret"
JSON = {"content-type": "application/json"}
TEXTS = ["Where do cenotes come from?", "", "日本語のテキスト 🙂", "\x00\x07 control"]


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine(["embed", "token_embed"])
    yield engine
    engine.close()


@pytest.fixture
def app(make_model: MakeModel, engine: FakeEngine) -> FastAPI:
    model = make_model(engine, allow_any_dimensions=True)
    return create_app([model], ServerConfig(api_key=(KEY,), max_body_bytes=1 << 20))


@pytest.fixture
def url(serve: Serve, app: FastAPI) -> str:
    return serve(app)


@pytest.fixture
def openai_client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def expected(url: str, text: str, dim: int = 8) -> np.ndarray:
    response = httpx.post(f"{url}/tokenize", json={"prompt": text}, headers=auth())
    return embedding(np.asarray(response.json()["tokens"]), dim, None)


def auth() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}"}


def post(url: str, **body: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/embeddings", json=body, headers=auth(), timeout=10)


def eventually(check: Callable[[], bool]) -> None:
    """Waits at most some seconds for something that another thread does."""
    for _ in range(500):
        if check():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never happened")


def test_openai_client_reads_base64_and_float_alike(openai_client: openai.OpenAI, url: str) -> None:
    base64 = openai_client.embeddings.create(model="minilm", input=TEXTS)
    floats = openai_client.embeddings.create(model="minilm", input=TEXTS, encoding_format="float")
    for text, one, other in zip(TEXTS, base64.data, floats.data, strict=True):
        np.testing.assert_array_equal(np.float32(one.embedding), expected(url, text))
        np.testing.assert_array_equal(np.float32(other.embedding), np.float32(one.embedding))
    assert base64.usage.prompt_tokens == base64.usage.total_tokens == floats.usage.prompt_tokens


def test_openai_client_sends_ids_dimensions_and_extensions(
    openai_client: openai.OpenAI, engine: FakeEngine
) -> None:
    openai_client.embeddings.create(
        model="minilm",
        input=[[101, 2000, 102], [101, 102]],
        dimensions=4,
        user="u",
        extra_body={"cache_salt": "s"},
    )
    assert [request.prompt.token_ids for request in engine.requests] == [
        [101, 2000, 102],
        [101, 102],
    ]
    assert engine.requests[0].params.dimensions == 4
    assert engine.requests[0].prompt.cache_salt == "s"


async def test_openai_async_client(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        answers = await asyncio.gather(
            *(client.embeddings.create(model="minilm", input=f"text {i}") for i in range(20))
        )
        for i, answer in enumerate(answers):
            np.testing.assert_array_equal(
                np.float32(answer.data[0].embedding), expected(url, f"text {i}")
            )
        models = await client.models.list()
        assert [model.id for model in models.data] == ["minilm"]
        assert (await client.models.retrieve("minilm")).id == "minilm"


def test_openai_client_raises_its_own_error_classes(
    openai_client: openai.OpenAI, url: str, engine: FakeEngine
) -> None:
    create = openai_client.embeddings.create
    with pytest.raises(openai.NotFoundError, match="minilm"):
        create(model="other", input="a")
    with pytest.raises(openai.BadRequestError, match="dimensions 9") as bad:
        create(model="minilm", input="a", dimensions=9)
    assert (bad.value.param, bad.value.code) == ("dimensions", "invalid_request")
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.embeddings.create(model="minilm", input="a")
    engine.refuse = Overloaded("full", retry_after=3)
    with pytest.raises(openai.RateLimitError) as full:
        create(model="minilm", input="a")
    assert full.value.response.headers["retry-after"] == "3"


def test_cohere_client_reranks_and_reads_errors(url: str) -> None:
    client = cohere.ClientV2(api_key=KEY, base_url=url)
    documents = ["one sinkhole", "two birds", "three"]
    answer = client.rerank(model="minilm", query="birds", documents=documents, top_n=2)
    assert len(answer.results) == 2
    scores = [result.relevance_score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert answer.meta is not None
    assert answer.meta.billed_units is not None
    assert answer.meta.billed_units.search_units == 1
    with pytest.raises(cohere.NotFoundError, match="minilm"):
        client.rerank(model="other", query="birds", documents=documents)


def test_64_threads_get_their_own_answers_in_order(url: str) -> None:
    client = httpx.Client(headers=auth(), timeout=30)

    def ask(number: int) -> None:
        texts = [f"client {number} text {i}" for i in range(5)]
        data = client.post(f"{url}/v1/embeddings", json={"input": texts}).json()["data"]
        for text, item in zip(texts, data, strict=True):
            np.testing.assert_array_equal(np.float32(item["embedding"]), wanted[text])

    wanted = {}
    everything = [f"client {number} text {i}" for number in range(64) for i in range(5)]
    for text, item in zip(everything, post(url, input=everything).json()["data"], strict=True):
        wanted[text] = np.float32(item["embedding"])
    with client, ThreadPoolExecutor(64) as pool:
        list(pool.map(ask, range(64)))


def test_a_client_that_goes_away_is_aborted_in_the_engine(url: str, engine: FakeEngine) -> None:
    engine.hold = True
    with connect(url) as connection:
        connection.sendall(raw_request(b'{"input": ["one", "two"]}'))
        assert engine.was_submitted.wait(5)
        assert engine.cancelled == []
    assert engine.was_cancelled.wait(5)
    assert engine.cancelled == [request.request_id for request in engine.requests]
    engine.release()
    assert post(url, input="still serving").status_code == 200
    metrics = httpx.get(f"{url}/metrics", headers=auth()).text
    assert sample(metrics, "cenote_cancelled_requests_total") == 1
    name = 'cenote_requests_total{route="/v1/embeddings",status="499"}'
    assert sample(metrics, name) == 1


def test_a_disconnect_harms_no_other_client(url: str, engine: FakeEngine) -> None:
    engine.hold = True
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post, url, input=f"text {i}") for i in range(4)]
        eventually(lambda: len(engine.submits) == 4)
        with connect(url) as connection:
            connection.sendall(raw_request(b'{"input": "gone"}'))
            eventually(lambda: len(engine.submits) == 5)
        assert engine.was_cancelled.wait(5)
        engine.release()
        assert [future.result(10).status_code for future in waiting] == [200] * 4
    assert len(engine.cancelled) == 1


def test_a_client_that_goes_away_while_sending_leaves_nothing(url: str, engine: FakeEngine) -> None:
    with connect(url) as connection:
        connection.sendall(raw_request(b'{"input": "half', length=100))
    assert post(url, input="still serving").status_code == 200
    assert len(engine.submits) == 1
    metrics = httpx.get(f"{url}/metrics", headers=auth()).text
    assert "cenote_errors_total{" not in metrics


def test_a_body_over_the_limit_is_refused_while_it_is_sent(url: str) -> None:
    response = post(url, input="a" * (3 << 20))
    assert response.status_code == 413
    assert response.headers["connection"] == "close"
    assert post(url, input="a").status_code == 200


def test_requests_on_one_connection_are_kept_apart(url: str) -> None:
    with httpx.Client(headers=auth()) as client:
        for i in range(5):
            good = client.post(f"{url}/v1/embeddings", json={"input": f"text {i}"})
            bad = client.post(
                f"{url}/v1/embeddings", content=b"{", headers={"content-type": "application/json"}
            )
            assert (good.status_code, bad.status_code) == (200, 400)


def test_a_request_that_takes_too_long_is_504_and_aborted(
    serve: Serve, make_model: MakeModel
) -> None:
    engine = FakeEngine()
    engine.hold = True
    url = serve(create_app([make_model(engine)], ServerConfig(request_timeout=0.1)))
    response = post(url, input="a")
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "timeout"
    assert engine.was_cancelled.wait(5)


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)))


def raw_request(body: bytes, length: int | None = None) -> bytes:
    return (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
        % (KEY.encode(), len(body) if length is None else length, body)
    )
