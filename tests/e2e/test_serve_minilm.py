"""The real thing: `cenote serve` on MiniLM in processes of its own, asked over HTTP."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import openai
import psutil
import pytest

SOURCES = Path(__file__).parents[2] / "src"
TEXTS = ["What is a cenote?", "", "Ein Loch im Kalkstein 🙂", "word " * 300]
# Generous: other work may share the machine. On an idle one it takes about 3 s.
READY_SECONDS = 60.0

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Served:
    """A server process, and what it has logged."""

    def __init__(self, *flags: str) -> None:
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cenote", "serve", "minilm", "--port", "0", *flags],
            env={**os.environ, "PYTHONPATH": str(SOURCES), "HF_HUB_OFFLINE": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._ready.wait(READY_SECONDS), self.lines
        self.ready_after = time.monotonic() - self.started
        found = re.search(r"at (http:\S+)\.$", "\n".join(self.lines), re.MULTILINE)
        assert found, self.lines
        self.url = found[1]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if "Ready" in line:
                self._ready.set()
        self._ready.set()

    @property
    def engine(self) -> psutil.Process:
        (engine,) = psutil.Process(self.process.pid).children()
        return engine

    def embed(self, **body: object) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/embeddings", json=body, timeout=60)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served("--dtype", "float32")
    yield server
    if server.process.poll() is None:
        assert server.stop() == 0, server.lines


def eventually(check: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def test_openai_client_gets_the_reference_s_vectors(served: Served, minilm_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(minilm_path), device="cpu")
    # The model's own file says 128 or 256 tokens; the server's limit must be the reference's.
    texts = [*TEXTS[:3], "word " * (reference.max_seq_length - 2)]
    wanted = reference.encode(texts, normalize_embeddings=True)
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        default = client.embeddings.create(model="minilm", input=texts)
        floats = client.embeddings.create(model="minilm", input=texts, encoding_format="float")
    for answer in (default, floats):
        got = np.float32([item.embedding for item in answer.data])
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)
        ids = reference.tokenizer(texts)["input_ids"]
        assert answer.usage.prompt_tokens == sum(map(len, ids))


def test_a_bi_encoder_reranks(served: Served) -> None:
    documents = ["A bird sings.", "A cenote is a natural sinkhole.", "Bread is baked."]
    body = {"query": "What is a cenote?", "documents": documents, "top_n": 2}
    answer = httpx.post(f"{served.url}/v2/rerank", json=body, timeout=60).json()
    assert answer["results"][0]["index"] == 1
    assert answer["results"][0]["relevance_score"] > 0.5
    assert len(answer["results"]) == 2


def test_too_long_names_length_and_limit_and_serving_goes_on(served: Served) -> None:
    limit = httpx.get(f"{served.url}/v1/models").json()["data"][0]["max_model_len"]
    refused = served.embed(input="word " * 1000)
    assert refused.status_code == 400
    assert f"{limit} tokens" in refused.json()["error"]["message"]
    assert "1002 tokens" in refused.json()["error"]["message"]
    cut = served.embed(input="word " * 1000, truncate_prompt_tokens=-1).json()["data"][0]
    assert (cut["truncated"], cut["prompt_tokens"]) == (True, limit)


def test_many_clients_get_the_same_as_one(served: Served) -> None:
    texts = [f"text number {i} about caves" for i in range(64)]
    together = [item["embedding"] for item in served.embed(input=texts).json()["data"]]
    with ThreadPoolExecutor(32) as pool:
        apart = list(pool.map(lambda text: served.embed(input=text).json(), texts))
    for one, answer in zip(together, apart, strict=True):
        np.testing.assert_allclose(one, answer["data"][0]["embedding"], rtol=0, atol=1e-6)


def test_the_api_process_has_no_torch(served: Served) -> None:
    assert served.embed(input="a").status_code == 200
    libraries = Path(f"/proc/{served.process.pid}/maps")
    if not libraries.exists():
        pytest.skip("this system doesn't tell what a process has loaded")
    assert "libtorch" not in libraries.read_text()
    assert "libtorch" in Path(f"/proc/{served.engine.pid}/maps").read_text()


def test_importing_the_server_loads_no_torch() -> None:
    code = (
        "import sys, cenote.server.run\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers'} & sys.modules.keys()\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(SOURCES)})


def test_a_killed_engine_is_503_and_comes_back(served: Served) -> None:
    before = served.engine.pid
    wanted = served.embed(input="caves").json()["data"]
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(served.embed, input=["word " * 200] * 256)
        eventually(lambda: running(served) > 0)
        os.kill(before, signal.SIGKILL)
        lost = under_way.result(60)
    assert lost.status_code == 503
    assert lost.json()["error"]["code"] == "engine_unavailable"
    assert lost.headers["retry-after"]
    refused = served.embed(input="caves")
    assert refused.status_code == 503
    assert httpx.get(f"{served.url}/health").status_code == 503
    eventually(lambda: httpx.get(f"{served.url}/health").status_code == 200)
    assert served.engine.pid != before
    again = served.embed(input="caves")
    assert again.status_code == 200
    np.testing.assert_array_equal(again.json()["data"][0]["embedding"], wanted[0]["embedding"])
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'cenote_engine_restarts_total{model="minilm"} 1.0' in metrics


def test_sigterm_finishes_what_runs_and_exits_with_0(served: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(served.embed, input=["word " * 200] * 256)
        eventually(lambda: running(served) > 0)
        served.process.send_signal(signal.SIGTERM)
        eventually(lambda: not accepts(served))
        answer = under_way.result(60)
    assert answer.status_code == 200
    assert len(answer.json()["data"]) == 256
    engine = served.engine if served.process.poll() is None else None
    assert served.process.wait(60) == 0, served.lines
    assert engine is None or not engine.is_running()
    assert not any("Traceback" in line for line in served.lines), served.lines


def running(served: Served) -> float:
    text = httpx.get(f"{served.url}/metrics").text
    found = re.search(r'^cenote_requests_running\{model="minilm"\} (\S+)$', text, re.MULTILINE)
    assert found
    return float(found[1])


def accepts(served: Served) -> bool:
    try:
        return httpx.get(f"{served.url}/health").status_code == 200
    except httpx.ConnectError:
        return False
