"""Apps over fake engines, with MiniLM's real tokenizer: everything above the engine is real."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from fake_engine import FakeEngine, embedding
from fastapi import FastAPI
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.config.pooling import ColbertConfig
from cenote.config.server import ServerConfig
from cenote.processors.registry import Processors
from cenote.processors.tokenizer import Tokenizer
from cenote.server.app import create_app
from cenote.server.served import ServedModel

LABELS = ("negative", "neutral", "positive")

MakeModel = Callable[..., ServedModel]
MakeClient = Callable[..., TestClient]
Serve = Callable[[FastAPI], str]


@pytest.fixture(scope="session")
def base(minilm_path: Path) -> tuple[ModelConfig, Tokenizer]:
    config = load_model_config(
        minilm_path, name="minilm", revision="1", engine=EngineConfig(max_model_len=64)
    )
    return config, Tokenizer(minilm_path, config)


@pytest.fixture(scope="session")
def make_model(base: tuple[ModelConfig, Tokenizer]) -> MakeModel:
    """A model over `engine`: `make_model(engine, names=("a", "b"), **EngineConfig fields)`."""
    config, tokenizer = base

    def make(
        engine: FakeEngine,
        *,
        names: tuple[str, ...] = ("minilm",),
        colbert: bool = False,
        adapters: tuple[str, ...] = (),
        **fields: Any,
    ) -> ServedModel:
        labels = LABELS[: engine.labels] if engine.labels != 1 else ("LABEL_0",)
        own = replace(config, labels=labels, num_labels=engine.labels)
        if colbert:
            part = ColbertConfig(dim=engine.dim, query_length=16, document_length=48)
            own = replace(own, pooler=replace(config.pooler, colbert=part))
        settings = EngineConfig(adapters=tuple(f"{name}=x" for name in adapters), **fields)
        return ServedModel(
            names=names,
            config=own,
            tokenizer=tokenizer,
            processors=Processors(own, tokenizer, engine.ready, settings),
            client=engine,
            adapters=adapters,
        )

    return make


@pytest.fixture(scope="session")
def make_client(make_model: MakeModel) -> MakeClient:
    """A client of an app over one engine: `make_client(engine, config=ServerConfig(…), …)`."""

    def make(
        engine: FakeEngine | None = None, config: ServerConfig | None = None, **model: Any
    ) -> TestClient:
        served = make_model(engine or FakeEngine(), **model)
        return TestClient(create_app([served], config or ServerConfig()))

    return make


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def client(engine: FakeEngine, make_client: MakeClient) -> TestClient:
    """An embedding model that may be cut to any size."""
    return make_client(engine, allow_any_dimensions=True)


KEY = "secret"


@dataclass(frozen=True)
class Everything:
    """A server on a real socket with a model of each kind: embedder, reranker, classifier, ner."""

    url: str
    key: str
    tokenizer: Tokenizer

    def vector(self, text: str, dim: int = 32) -> NDArray[np.float32]:
        """What the embedder gives for a text."""
        (encoded,) = self.tokenizer.encode([text])
        return embedding(np.asarray(encoded.ids), dim, None)


@pytest.fixture
def everything(
    serve: Serve, make_model: MakeModel, base: tuple[ModelConfig, Tokenizer]
) -> Iterator[Everything]:
    engines = {
        "embedder": FakeEngine(["embed", "token_embed", "sparse_embed"], dim=32),
        "reranker": FakeEngine(["classify"], labels=1),
        "classifier": FakeEngine(["classify"]),
        "ner": FakeEngine(["token_classify"]),
    }
    models = [
        make_model(engine, names=(name,), allow_any_dimensions=True)
        for name, engine in engines.items()
    ]
    url = serve(create_app(models, ServerConfig(api_key=(KEY,))))
    yield Everything(url, KEY, base[1])
    for engine in engines.values():
        engine.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Runs an app on a real socket: `url = serve(app)`."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(app: FastAPI) -> str:
        config = uvicorn.Config(app, port=0, loop="uvloop", http="httptools", log_config=None)
        listener = config.bind_socket()
        listener.listen()  # so that a client that comes before the server is up waits
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)
