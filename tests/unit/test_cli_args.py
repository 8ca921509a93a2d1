"""Flags are made from the configs: every field has one, with its type, default and help."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import get_type_hints

import pytest
from typer.testing import CliRunner

from cenote.cli.args import option_names
from cenote.cli.main import app, main
from cenote.config.engine import EngineConfig
from cenote.config.server import ServerConfig

runner = CliRunner()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[EngineConfig], ServerConfig]]:
    """What `cenote serve` would have started."""
    import cenote.log
    import cenote.server.run

    monkeypatch.setattr(cenote.log, "setup", lambda level: None)
    calls: list[tuple[list[EngineConfig], ServerConfig]] = []
    monkeypatch.setattr(cenote.server.run, "serve", lambda *configs: calls.append(configs))
    return calls


@pytest.mark.parametrize("config", [EngineConfig, ServerConfig])
def test_serve_has_a_flag_with_help_for_every_field(config: type) -> None:
    text = " ".join(runner.invoke(app, ["serve", "--help"], terminal_width=200).output.split())
    hints = get_type_hints(config)
    for item in fields(config):
        for name in option_names(item, hints[item.name])[0].split("/"):
            assert re.search(rf"{name}\b", text), name
        assert " ".join(item.metadata["help"].split())[:30] in text


def test_serve_without_flags_is_the_default_config(
    served: list[tuple[list[EngineConfig], ServerConfig]],
) -> None:
    assert runner.invoke(app, ["serve"]).exit_code == 0
    assert served == [([EngineConfig()], ServerConfig())]


def test_flags_reach_the_configs_with_their_types(
    served: list[tuple[list[EngineConfig], ServerConfig]],
) -> None:
    arguments = (
        "serve my-model --dtype float32 --max-model-len 64 --no-enable-prefix-caching --normalize "
        "--adapters a=x --adapters b=y --port 9 --api-key k1 --api-key k2 --request-timeout 1.5"
    )
    result = runner.invoke(app, arguments.split())
    assert result.exit_code == 0, result.output
    (engine,), server = served[0]
    assert engine == EngineConfig(
        model="my-model",
        dtype="float32",
        max_model_len=64,
        enable_prefix_caching=False,
        normalize=True,
        adapters=("a=x", "b=y"),
    )
    assert server == ServerConfig(port=9, api_key=("k1", "k2"), request_timeout=1.5)


def test_a_wrong_flag_suggests_the_right_one() -> None:
    result = runner.invoke(app, ["serve", "--max-num-seq", "3"])
    assert result.exit_code == 2
    assert "--max-num-seqs" in result.output


def test_a_wrong_choice_lists_the_choices() -> None:
    result = runner.invoke(app, ["serve", "--dtype", "float33"])
    assert result.exit_code == 2
    for choice in ("auto", "float32", "bfloat16", "float16"):
        assert choice in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["embed", "--threads", "-1", "hi"], ["threads", "at least 0", "-1"]),
        (["serve", "--port", "70000"], ["port", "65535", "70000"]),
        (["embed", "-o", "x.txt", "hi"], [".jsonl", ".npy", ".parquet"]),
        (["embed", "-i", "no-such-file"], ["no-such-file", "No such file"]),
        (["embed", "-i", "f", "hi"], ["--input", "not both"]),
        (["embed", "-m", "/no/such/model", "hi"], ["/no/such/model"]),
    ],
)
def test_a_failure_is_a_sentence_and_not_a_traceback(
    arguments: list[str],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["cenote", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    message = capsys.readouterr().err
    assert message.startswith("Error: ")
    for word in words:
        assert word in message


def test_several_models_share_the_flags_but_for_their_own(
    served: list[tuple[list[EngineConfig], ServerConfig]],
) -> None:
    arguments = (
        "serve a org/b --threads 1 --alias rerank=org/b --lazy --override org/b:max_model_len=64 "
        "--override org/b:normalize=false --override a:dtype=float32 --override a:adapters=x=/y"
    )
    result = runner.invoke(app, arguments.split())
    assert result.exit_code == 0, result.output
    engines, server = served[0]
    assert engines == [
        EngineConfig(model="a", threads=1, dtype="float32", adapters=("x=/y",)),
        EngineConfig(model="org/b", threads=1, max_model_len=64, normalize=False),
    ]
    assert (server.lazy, server.alias) == (True, ("rerank=org/b",))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("c:threads=1", "'c:threads=1'"),
        ("a:threads", "MODEL:FIELD=VALUE"),
        ("a:thread=1", "unknown setting 'thread'"),
        ("a:model=b", "unknown setting 'model'"),
        ("a:threads=x", "'x' is no value for threads"),
        ("a:dtype=float33", "'float33' is no value for dtype"),
        ("a:threads=-1", "threads must be at least 0"),
    ],
)
def test_a_wrong_override_is_refused(override: str, words: str) -> None:
    from cenote.config.overrides import engines_for
    from cenote.errors import InvalidRequest

    with pytest.raises(InvalidRequest, match=re.escape(words)):
        engines_for(["a", "b"], EngineConfig(), [override])
    with pytest.raises(InvalidRequest, match="named twice"):
        engines_for(["a", "a"], EngineConfig(), [])
