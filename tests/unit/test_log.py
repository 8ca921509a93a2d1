"""Environment variables and the two log formats."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from cenote import log
from cenote.config import env
from cenote.errors import InvalidRequest


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger("cenote")
    handlers, level, propagate = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    root.propagate = propagate


def test_text_line_is_short_and_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("info", "text")
    log.get_logger("cenote.engine.core").info("ready in %d s", 3)
    log.get_logger("cenote.engine.core").debug("hidden")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("INFO engine.core: ready in 3 s\n")
    assert err.count("\n") == 1


def test_json_line_has_extra_fields_and_the_exception(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("debug", "json")
    try:
        raise ValueError("bad\nthing")
    except ValueError:
        log.get_logger("server").exception("failed é", extra={"request_id": "r-1"})
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found["message"] == "failed é"
    assert found["logger"] == "cenote.server"
    assert found["level"] == "error"
    assert found["request_id"] == "r-1"
    assert "ValueError: bad\nthing" in found["exception"]
    assert found["time"].endswith("+00:00")


def test_text_after_json_has_no_stale_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("info", "json")
    log.setup("info", "text")
    log.get_logger("x").warning("once")
    assert capsys.readouterr().err.count("once") == 1


def test_environment_chooses_level_and_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CENOTE_LOG_LEVEL", "error")
    monkeypatch.setenv("CENOTE_LOG_FORMAT", "json")
    log.setup()
    log.get_logger("x").warning("no")
    log.get_logger("x").error("yes")
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == ["yes"]


@pytest.mark.parametrize(("level", "format"), [("loud", None), (None, "xml")])
def test_unknown_choice_lists_the_known_ones(level: str | None, format: str | None) -> None:
    with pytest.raises(InvalidRequest, match="must be one of"):
        log.setup(level, format)


def test_importing_makes_no_handler() -> None:
    assert not logging.getLogger("cenote.fresh").handlers


def test_variables_are_named_once_and_explained() -> None:
    table = env.OWN + env.HUGGING_FACE
    names = [variable.name for variable in table]
    assert len(set(names)) == len(names)
    assert all(variable.help.endswith(".") for variable in table)
    assert all(variable.name.startswith("CENOTE_") for variable in env.OWN)


def test_empty_variable_counts_as_unset() -> None:
    assert env.LOG_LEVEL.read({"CENOTE_LOG_LEVEL": ""}) == "info"
    assert env.ISA.read({}) is None
    assert env.ISA.read({"CENOTE_ISA": "avx2"}) == "avx2"
    with pytest.raises(InvalidRequest, match=r"CENOTE_ISA='sse'.*avx512"):
        env.ISA.read({"CENOTE_ISA": "sse"})
