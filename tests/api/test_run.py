"""From configs to a bound, loaded server: what is tried first, and what is closed on failure."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fake_engine import FakeEngine

from cenote.config.engine import EngineConfig
from cenote.config.server import ServerConfig
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.server import run
from conftest import MakeModel


class ClosingEngine(FakeEngine):
    """Tells when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = threading.Event()

    def close(self) -> None:
        super().close()
        self.closed.set()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ClosingEngine:
    """What `run` gets when it starts an engine."""
    engine = ClosingEngine()
    monkeypatch.setattr(run, "start_engine", lambda config, **_: engine)
    return engine


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with run.bind(ServerConfig(port=0)) as listener:
        yield listener


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("port", 65536, "port must be at most 65535, not 65536"),
        ("engine_niceness", 20, "engine_niceness must be at most 19, not 20"),
        ("engine_niceness", -1, "engine_niceness must be at least 0, not -1"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(field: str, value: int, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        ServerConfig(**{field: value})


def test_an_address_in_use_is_told_with_the_address(listener: socket.socket) -> None:
    listener.listen()
    port = listener.getsockname()[1]
    with pytest.raises(OSError, match=rf"127\.0\.0\.1.*{port}"):
        run.bind(ServerConfig(port=port))


def test_the_address_is_tried_before_the_model_is_loaded(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener.listen()
    monkeypatch.setattr(run, "load", lambda *_: pytest.fail("loaded"))
    with pytest.raises(OSError, match="Can't listen"):
        run.serve(EngineConfig(), ServerConfig(port=listener.getsockname()[1]))


def test_load_makes_a_served_model(engine: ClosingEngine, minilm_path: Path) -> None:
    config = EngineConfig(model=str(minilm_path), adapters=("tuned=/x",))
    model = run.load(config, ServerConfig(served_model_name=("a", "b")))
    assert model.names == ("a", "b")
    assert model.adapters == ("tuned",)
    assert model.client is engine
    assert run.load(EngineConfig(model="minilm"), ServerConfig()).names == ("minilm",)


def test_an_engine_is_closed_when_the_model_s_files_are_bad(
    engine: ClosingEngine, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(ModelLoadError):
        run.load(EngineConfig(model=str(tmp_path)), ServerConfig())
    assert engine.closed.is_set()


def test_a_model_that_is_not_there_starts_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "start_engine", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(ModelLoadError):
        run.load(EngineConfig(model="/no/such/folder"), ServerConfig())


def test_it_serves_on_a_unix_socket(make_model: MakeModel, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    config = ServerConfig(uds=path)
    server = run.http_server([make_model(FakeEngine())], config)
    with run.bind(config) as listener:
        listener.listen()
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        with httpx.Client(transport=httpx.HTTPTransport(uds=path), timeout=10) as client:
            answer = client.post("http://x/v1/embeddings", json={"input": "a"})
        server.should_exit = True
        thread.join(10)
    assert answer.status_code == 200
    assert "server" not in answer.headers
