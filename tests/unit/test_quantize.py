"""Quantised vectors: the reference's numbers, and nothing that depends on a request's others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers.util.quantization import quantize_embeddings

from cenote import LLM
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.processors.quantize import PRECISIONS, Precision, Quantizer


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    made = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)
    made[3] = 0.0
    made[4, ::2] = -0.0
    made[:3] /= np.linalg.norm(made[:3], axis=1, keepdims=True)
    return made


@pytest.mark.parametrize("precision", PRECISIONS)
def test_calibrated_vectors_are_the_reference_s(vectors: np.ndarray, precision: Precision) -> None:
    calibration = np.random.default_rng(1).standard_normal((100, 64)).astype(np.float32)
    calibration[:, 5] = 0.25
    wanted = quantize_embeddings(vectors, precision, calibration_embeddings=calibration)
    got = Quantizer(calibration).quantize(vectors, precision)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_without_calibration_the_range_is_that_of_unit_vectors(
    vectors: np.ndarray, precision: Precision
) -> None:
    ranges = np.float32([[-1] * 64, [1] * 64])
    wanted = quantize_embeddings(vectors[:4], precision, ranges=ranges)
    np.testing.assert_array_equal(Quantizer().quantize(vectors[:4], precision), wanted)
    alone = Quantizer().quantize(vectors[1], precision)
    np.testing.assert_array_equal(alone, wanted[1])


def test_values_that_would_be_cut_silently_are_refused(vectors: np.ndarray) -> None:
    with pytest.raises(InvalidRequest, match=r"\[-1, 1\].*--calibration") as caught:
        Quantizer().quantize(vectors, "int8", param="output_dtype")
    assert caught.value.param == "output_dtype"


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_bits_need_whole_bytes(precision: Precision) -> None:
    with pytest.raises(InvalidRequest, match="multiple of 8 dimensions, not 12"):
        Quantizer().quantize(np.ones((1, 12), np.float32), precision)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'int4'"):
        Quantizer().quantize(np.ones(8, np.float32), "int4")  # type: ignore[arg-type]


def test_a_cut_vector_s_ranges_are_those_of_cut_vectors(vectors: np.ndarray) -> None:
    unit = vectors[5:] / np.linalg.norm(vectors[5:], axis=1, keepdims=True)
    cut = unit[:, :16] / np.linalg.norm(unit[:, :16], axis=1, keepdims=True)
    wanted = quantize_embeddings(cut, "int8", calibration_embeddings=cut)
    np.testing.assert_array_equal(Quantizer(unit).quantize(cut, "int8"), wanted)
    with pytest.raises(InvalidRequest, match="64 dimensions, not 65"):
        Quantizer(unit).quantize(np.ones(65, np.float32), "int8")


def test_calibration_comes_from_a_file(tmp_path: Path, vectors: np.ndarray) -> None:
    np.save(tmp_path / "good.npy", vectors)
    got = Quantizer.from_file(str(tmp_path / "good.npy")).quantize(vectors, "uint8")
    np.testing.assert_array_equal(got, Quantizer(vectors).quantize(vectors, "uint8"))
    np.save(tmp_path / "flat.npy", vectors[0])
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no")
    for name in ("flat", "objects", "text", "absent"):
        with pytest.raises(ModelLoadError, match=name):
            Quantizer.from_file(str(tmp_path / f"{name}.npy"))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_offline_vectors_are_the_floats_quantised(
    tiny_bert: Path, tmp_path: Path, precision: Precision
) -> None:
    texts = ["one", "two words", "three words here", "four"]
    with LLM(str(tiny_bert), dtype="float32") as llm:
        floats = np.stack([item.embedding for item in llm.embed(texts, progress=False)])
    np.save(tmp_path / "ranges.npy", floats)
    with LLM(str(tiny_bert), dtype="float32", calibration=str(tmp_path / "ranges.npy")) as llm:
        got = llm.embed(texts, precision=precision, progress=False)
    wanted = quantize_embeddings(floats, precision, calibration_embeddings=floats)
    np.testing.assert_array_equal(np.stack([item.embedding for item in got]), wanted)
