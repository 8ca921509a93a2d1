"""int8 products end to end: how near the vectors stay, what is spared, and who is warned."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cenote import LLM
from cenote.cli.ranking import agreement
from cenote.cli.workload import make_texts
from cenote.config.engine import EngineConfig, Quantization
from cenote.errors import ModelLoadError
from cenote.kernels import backend
from cenote.models import load

Vectors = NDArray[np.float32]

native = pytest.mark.skipif(
    find_spec("cenote._native") is None, reason="the native kernels are not built here"
)


def embed(folder: Path, quantization: Quantization) -> Vectors:
    texts = make_texts("short", 60, seed=3)
    with LLM(str(folder), dtype="float32", quantization=quantization, profile=False) as llm:
        return np.stack([item.embedding for item in llm.embed(texts, progress=False)])


@native
def test_int8_stays_near_on_the_real_model_and_sparing_the_sensitive_is_nearer(
    minilm_path: Path,
) -> None:
    exact = embed(minilm_path, "none")
    whole = agreement(list(embed(minilm_path, "int8")), list(exact))
    mixed = agreement(list(embed(minilm_path, "int8-mixed")), list(exact))
    assert whole.median_cosine > 0.996
    assert mixed.median_cosine > 0.998
    assert mixed.median_cosine > whole.median_cosine
    assert whole.top10 > 0.88
    assert mixed.top1 > 0.9


def test_int8_needs_the_native_kernels(tiny_bert: Path) -> None:
    with pytest.raises(ModelLoadError, match="quantization=int8-mixed needs the native kernels"):
        LLM(str(tiny_bert), quantization="int8-mixed", kernels="torch", profile=False)


@native
def test_who_has_no_int8_products_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "FAST_INT8", frozenset())
    backend.configure("native", torch.device("cpu"), torch.float32)
    monkeypatch.setattr(load.logger, "parent", logging.getLogger())
    with caplog.at_level(logging.WARNING):
        form = load.weight_form(torch.float32, EngineConfig(quantization="int8"))
    assert form.int8
    assert not form.spare
    assert "may be no faster" in caplog.text


def test_agreement_counts_neighbours_that_stay() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    same = agreement(list(vectors), list(vectors))
    assert (same.top1, same.top10) == (1.0, 1.0)
    assert same.median_cosine == pytest.approx(1.0)
    other = agreement(list(vectors), list(vectors[::-1]))
    assert other.top1 < 0.5
    assert other.top10 < 0.6
