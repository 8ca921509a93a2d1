"""Clients that need older packages than ours: each runs in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Everything

HERE = Path(__file__).parent
PYTHON = HERE.parents[2] / ".venv-clients" / "bin" / "python"
TEXTS = ["Where do cenotes come from?", "a bird"]
DOCUMENTS = {"one sinkhole", "two birds that sing", "three"}

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="run scripts/setup_clients: it makes .venv-clients"
)


def ask(server: Everything, client: str) -> dict[str, Any]:
    """What a client in the other environment got."""
    environ = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environ.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(PYTHON), str(HERE / "apart" / "ask.py"), client, server.url, server.key],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_vectors(server: Everything, found: dict[str, Any]) -> None:
    wanted = np.stack([server.vector(text) for text in TEXTS])
    np.testing.assert_allclose(found["vectors"], wanted, atol=1e-7)
    if "query" in found:
        np.testing.assert_allclose(found["query"], wanted[0], atol=1e-7)


def test_langchain_cohere(everything: Everything) -> None:
    found = ask(everything, "langchain_cohere")
    check_vectors(everything, found)
    assert len(found["kept"]) == 2
    assert set(found["kept"]) < DOCUMENTS


def test_langchain_huggingface(everything: Everything) -> None:
    check_vectors(everything, ask(everything, "langchain_huggingface"))


def test_llama_index_cohere_rerank(everything: Everything) -> None:
    found = ask(everything, "llama_index_cohere")
    assert len(found["kept"]) == 2
    assert set(found["kept"]) < DOCUMENTS


def test_infinity_client(everything: Everything) -> None:
    found = ask(everything, "infinity")
    check_vectors(everything, found)
    assert len(found["kept"]) == 2
    assert {label for labels in found["labels"] for label in labels} == {
        "negative",
        "neutral",
        "positive",
    }
    assert found["models"] == ["embedder", "reranker", "classifier", "ner"]
    assert found["health"] == 200
