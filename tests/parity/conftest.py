"""Fixtures of the parity tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import Kind, MakeTiny, save_tiny

from cenote.runner.model_runner import ModelRunner, StepWork


@pytest.fixture(scope="session")
def make_tiny(tmp_path_factory: pytest.TempPathFactory) -> MakeTiny:
    """Saves a random model of any family: `make_tiny("RobertaModel", "bpe", **config)`.

    The same arguments give the same folder again.
    """
    made: dict[str, Path] = {}

    def make(architecture: str, kind: Kind, **config: Any) -> Path:
        key = repr((architecture, kind, sorted(config.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp(architecture)
            made[key] = save_tiny(folder, architecture, kind, **config)
        return made[key]

    return make


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts each step has run on the model, from now on."""
    counts: list[int] = []
    forward = ModelRunner.forward

    def counted(runner: ModelRunner, work: StepWork) -> None:
        if work.to_run:
            counts.append(len(work.to_run))
        forward(runner, work)

    monkeypatch.setattr(ModelRunner, "forward", counted)
    return counts
