"""What unit tests share: a served model of each kind of scorer, over a fake engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from served import Served


@pytest.fixture
def bi_encoder(tiny_bert: Path) -> Served:
    return Served(tiny_bert, ["embed", "token_embed"])


@pytest.fixture
def cross_encoder(tiny_cross_encoder: Path) -> Served:
    return Served(tiny_cross_encoder, ["classify"])


@pytest.fixture
def colbert(tiny_colbert: Path) -> Served:
    return Served(tiny_colbert, ["token_embed"])
