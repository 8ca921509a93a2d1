"""Several models on one port: names, limits of their own, engines that start when asked."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient

from cenote.config.engine import EngineConfig
from cenote.config.overrides import engines_for
from cenote.config.server import ServerConfig
from cenote.errors import EngineUnavailable, InvalidRequest, ModelLoadError, ModelNotFound
from cenote.server import run
from cenote.server.app import create_app
from cenote.server.served import LazyModel, ServedModel, ServedModels
from conftest import MakeModel

EMBED = "/v1/embeddings"


class Starts:
    """Starts a model when told to, counts how often, and fails as often as asked."""

    def __init__(self, model: ServedModel, failures: int = 0) -> None:
        self.model = model
        self.failures = failures
        self.count = 0

    def __call__(self) -> ServedModel:
        self.count += 1
        if self.count <= self.failures:
            raise ModelLoadError("no weights in /x")
        return self.model


@pytest.fixture
def starts(make_model: MakeModel) -> Starts:
    return Starts(make_model(FakeEngine(), names=("late", "alias")))


def lazy(starts: Starts) -> LazyModel:
    return LazyModel(starts.model.names, starts.model.config, starts)


def test_an_engine_starts_at_its_first_request(starts: Starts, make_model: MakeModel) -> None:
    early = make_model(FakeEngine(), names=("early",))
    client = TestClient(create_app([early, lazy(starts)], ServerConfig()))
    cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
    assert list(cards) == ["early", "late", "alias"]
    assert (cards["late"]["loaded"], cards["late"]["tasks"]) == (False, None)
    assert cards["late"]["max_model_len"] == 64
    assert cards["late"]["prompts"] == cards["early"]["prompts"]
    assert client.get("/health").status_code == 200
    assert client.post(EMBED, json={"input": "a"}).json()["model"] == "early"
    assert starts.count == 0
    for name in ("late", "alias"):
        body = client.post(EMBED, json={"input": "a", "model": name}).json()
        assert body["model"] == name
    assert starts.count == 1
    card = client.get("/v1/models/late").json()
    assert (card["loaded"], card["tasks"]) == (True, ["embed"])
    assert 'cenote_engine_up{model="late"} 1.0' in client.get("/metrics").text


async def test_all_who_ask_while_it_starts_wait_for_the_same_start(starts: Starts) -> None:
    begun, go = threading.Event(), threading.Event()

    def begin() -> ServedModel:
        begun.set()
        assert go.wait(5)
        return starts()

    models = ServedModels([LazyModel(("late",), starts.model.config, begin)])
    asking = [asyncio.create_task(models.start("late")) for _ in range(5)]
    await asyncio.to_thread(begun.wait, 5)
    asking[0].cancel()
    go.set()
    targets = await asyncio.gather(*asking[1:])
    assert {target.name for target in targets} == {"late"}
    assert starts.count == 1
    with pytest.raises(ModelNotFound):
        await models.start("none")


async def test_a_failed_start_is_told_and_tried_again(starts: Starts) -> None:
    starts.failures = 1
    model = lazy(starts)
    with pytest.raises(EngineUnavailable, match="late could not be started: no weights in /x"):
        await model.start()
    assert (await model.start()).name == "late"


def test_models_are_loaded_with_their_names_and_limits(
    monkeypatch: pytest.MonkeyPatch, minilm_path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.symlink_to(minilm_path)
    started: list[EngineConfig] = []

    def start(config: EngineConfig, *, in_process: bool, niceness: int) -> FakeEngine:
        started.append(config)
        assert niceness == 3
        return FakeEngine(max_model_len=config.max_model_len or 256)

    monkeypatch.setattr(run, "start_engine", start)
    engines = engines_for(["minilm", str(other)], EngineConfig(), [f"{other}:max_model_len=16"])
    server = ServerConfig(alias=("first=minilm", f"second={other}"), engine_niceness=3)
    run.check_names(engines, server)
    models = run.load_all(engines, server)
    assert [model.names for model in models] == [("minilm", "first"), (str(other), "second")]
    client = TestClient(create_app(models, server))
    long = {"input": "word " * 30}
    assert client.post(EMBED, json={**long, "model": "first"}).status_code == 200
    refused = client.post(EMBED, json={**long, "model": "second"})
    assert "16 tokens" in refused.json()["message"]
    started.clear()
    waiting = run.load_all(engines, replace(server, lazy=True))
    assert started == []
    assert [model.config.max_model_len for model in waiting] == [256, 16]


def test_a_model_that_can_t_be_served_stops_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[bool] = []

    class Closing(FakeEngine):
        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(run, "start_engine", lambda config, **_: Closing())
    engines = [EngineConfig(model="minilm"), EngineConfig(model="/no/such/folder")]
    for server in (ServerConfig(), ServerConfig(lazy=True)):
        with pytest.raises(ModelLoadError, match="/no/such/folder"):
            run.load_all(engines, server)
    assert closed == [True]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (ServerConfig(alias=("x=c",)), "'x=c'"),
        (ServerConfig(alias=("a",)), "name=model"),
        (ServerConfig(alias=("=a",)), "name=model"),
        (ServerConfig(served_model_name=("x",)), "with several, use alias"),
    ],
)
def test_names_that_mean_no_model_are_refused(server: ServerConfig, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        run.check_names([EngineConfig(model="a"), EngineConfig(model="b")], server)
