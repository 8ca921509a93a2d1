"""Fixtures of the parity tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import Kind, MakeTiny, save_tiny


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
