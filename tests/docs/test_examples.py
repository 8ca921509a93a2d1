"""Every file of examples/ runs as its docstring says, and prints what matters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# File → the fixture whose value is its argument, and what it must print.
EXPECTED: dict[str, tuple[str | None, str]] = {
    "offline_embed.py": (None, "Maya people drew their water from sinkholes."),
    "rerank.py": (None, "scored by: bi_encoder"),
    "openai_client.py": ("server_url", "2 vectors of 384 numbers"),
    "colbert_explain.py": ("tiny_colbert", "→"),
    "classify.py": ("tiny_classifier", "negative"),
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_example_runs(name: str, request: pytest.FixtureRequest) -> None:
    fixture, expected = EXPECTED[name]
    arguments = [str(request.getfixturevalue(fixture))] if fixture else []
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
