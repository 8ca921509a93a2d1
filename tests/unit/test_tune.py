"""Tuning: the search's choices, the profile's file, and who heeds it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from cenote import LLM
from cenote.cli.main import app
from cenote.cli.tuning import Challenge, Search, challenges
from cenote.config.engine import EngineConfig
from cenote.config.profile import Profile, profile_path, with_profile
from cenote.errors import ModelLoadError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CENOTE_KERNELS", raising=False)
    return tmp_path / "cache"


class FakeEngine:
    """Takes so long as its settings are bad; remembers who is open."""

    open: ClassVar[list[EngineConfig]] = []

    def __init__(self, config: EngineConfig) -> None:
        if config.kernels == "torch":
            raise ModelLoadError("no torch here")
        self.config = config
        FakeEngine.open.append(config)

    def run(self) -> float:
        seconds = 1.0
        if self.config.dtype == "float32":
            seconds *= 2
        if self.config.max_num_batched_tokens == 4096:
            seconds *= 0.8
        if self.config.threads == 3:
            seconds *= 1.01
        return seconds

    def close(self) -> None:
        FakeEngine.open.remove(self.config)


@pytest.fixture
def search() -> Iterator[Search]:
    config = EngineConfig()
    yield Search(config, FakeEngine(config), FakeEngine, 1000, time.monotonic() + 60)
    assert FakeEngine.open == []


def test_the_search_keeps_what_is_clearly_faster_and_cheaper_ties(search: Search) -> None:
    todo = challenges(search.best, "bfloat16", 2048, 4)
    search.run(todo, lambda trial: None)
    assert search.best == EngineConfig(max_num_batched_tokens=4096, threads=3)
    refused = next(one for one in search.trials if one.settings == {"kernels": "torch"})
    assert {"lanes": 1} in [one.settings for one in search.trials]
    assert refused.ratio is None
    assert refused.note == "no torch here"
    assert search.rate == pytest.approx(1000 / 0.808)


def test_the_search_stops_at_its_deadline_and_says_what_is_left(search: Search) -> None:
    search.deadline = 0.0
    todo = [Challenge({"threads": 1})]
    search.run(todo, lambda trial: None)
    assert search.left_out == todo
    assert search.best == EngineConfig()


def test_a_given_setting_beats_the_profile(tiny_bert: Path) -> None:
    engine = EngineConfig(model=str(tiny_bert))
    profile = Profile(model="m", machine="here", dtype="float32", threads=1)
    profile.write(profile_path(tiny_bert, engine))
    assert with_profile(engine, tiny_bert) == replace(engine, dtype="float32", threads=1)
    given = replace(engine, dtype="bfloat16")
    assert with_profile(given, tiny_bert) == replace(given, threads=1)
    for other in (replace(engine, profile=False), replace(engine, device="cuda")):
        assert with_profile(other, tiny_bert) == other


def test_the_environment_says_which_kernels_auto_means(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = Profile(model="m", machine="here", kernels="native")
    assert profile.apply(EngineConfig()).kernels == "native"
    monkeypatch.setenv("CENOTE_KERNELS", "torch")
    assert profile.apply(EngineConfig()).kernels == "auto"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"speed": 9}',
        '{"model": "m"}',
        '{"model": "m", "machine": "h", "dtype": "int3"}',
        '{"model": "m", "machine": "h", "threads": -1}',
        '{"model": "m", "machine": "h", "lanes": true}',
    ],
)
def test_a_broken_profile_is_told_and_not_used(
    text: str, tiny_bert: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = EngineConfig(model=str(tiny_bert))
    path = profile_path(tiny_bert, engine)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    logger = logging.getLogger("cenote.config.profile")
    logger.addHandler(caplog.handler)
    try:
        assert with_profile(engine, tiny_bert) == engine
    finally:
        logger.removeHandler(caplog.handler)
    assert str(path) in caplog.text


def test_profiles_are_apart_by_model_and_quantization(tiny_bert: Path, minilm_path: Path) -> None:
    engine = EngineConfig()
    paths = {
        profile_path(tiny_bert, engine),
        profile_path(minilm_path, engine),
        profile_path(minilm_path, replace(engine, quantization="int8")),
    }
    assert len(paths) == 3


def test_the_command_writes_a_profile_that_llm_heeds(tiny_bert: Path, cache: Path) -> None:
    done = CliRunner().invoke(
        app, ["tune", str(tiny_bert), "--seconds", "1", "--workload", "short"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    path = Path(found["profile"])
    assert path.is_relative_to(cache)
    assert found["trials"][0]["kept"]
    assert found["tokens_per_s"] > 0
    profile = Profile.read(path)
    assert profile is not None
    replace(profile, dtype="float32", max_num_batched_tokens=777).write(path)
    with LLM(str(tiny_bert)) as llm:
        assert llm.ready.dtype == "float32"
        assert llm.config.max_num_batched_tokens == 777
    with LLM(str(tiny_bert), profile=False) as llm:
        assert llm.config.max_num_batched_tokens == 0


def test_no_write_leaves_no_file(
    search: Search, tiny_bert: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tuned(*_: object) -> Search:
        search.run([], lambda trial: None)
        return search

    monkeypatch.setattr("cenote.cli.tune._search", tuned)
    done = CliRunner().invoke(app, ["tune", str(tiny_bert), "--no-write"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["profile"] is None
    assert not cache.exists()
