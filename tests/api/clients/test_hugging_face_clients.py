"""Hugging Face's inference client and what is built on it: a model's own address is our root."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import Everything

TEXTS = ["Where do cenotes come from?", "a bird"]


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refuses every address, this machine's too, while the hub is offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def client(server: Everything, path: str = "/") -> object:
    hub = pytest.importorskip("huggingface_hub")
    return hub.InferenceClient(model=server.url + path, token=server.key)


@pytest.mark.parametrize("path", ["/", "/embed", "/tei/embed"])
def test_feature_extraction(everything: Everything, path: str) -> None:
    got = client(everything, path).feature_extraction(TEXTS, normalize=True, truncate=True)
    np.testing.assert_allclose(got, np.stack([everything.vector(t) for t in TEXTS]), atol=1e-7)


@pytest.mark.parametrize("path", ["/", "/similarity"])
def test_sentence_similarity(everything: Everything, path: str) -> None:
    got = client(everything, path).sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    np.testing.assert_allclose(got[0], 1, atol=1e-6)
    wanted = everything.vector(TEXTS[0]) @ everything.vector(TEXTS[1])
    np.testing.assert_allclose(got[1], wanted, atol=1e-6)


def test_text_classification(everything: Everything) -> None:
    # The client sends no model name to an address; a query parameter says which one is meant.
    found = client(everything, "/?model=classifier").text_classification("I loved it.")
    assert {item.label for item in found} == {"negative", "neutral", "positive"}
    assert found[0].score >= found[1].score
    raw = client(everything, "/?model=classifier").text_classification(
        "I loved it.", function_to_apply="none", top_k=1
    )
    assert len(raw) == 1


@pytest.mark.parametrize("strategy", ["none", "simple"])
def test_token_classification(everything: Everything, strategy: str) -> None:
    found = client(everything, "/?model=ner").token_classification(
        "hello cenote", aggregation_strategy=strategy
    )
    assert found
    for item in found:
        assert "hello cenote"[item.start : item.end]
        assert (item.entity or item.entity_group) in ("negative", "neutral", "positive")


def test_errors_are_the_client_s(everything: Everything) -> None:
    hub = pytest.importorskip("huggingface_hub")
    from huggingface_hub.errors import HfHubHTTPError

    with pytest.raises(HfHubHTTPError) as too_long:
        client(everything).feature_extraction("word " * 100)
    assert too_long.value.response.status_code == 422
    with pytest.raises(HfHubHTTPError) as stranger:
        hub.InferenceClient(model=everything.url, token="wrong").feature_extraction("a")
    assert stranger.value.response.status_code == 401


def test_llama_index_hugging_face_api(everything: Everything) -> None:
    module = pytest.importorskip(
        "llama_index.embeddings.huggingface_api",
        reason="llama-index-embeddings-huggingface-api (extra clients) is not installed",
    )
    embedder = module.HuggingFaceInferenceAPIEmbedding(
        model_name=f"{everything.url}/", token=everything.key
    )
    got = embedder.get_text_embedding(TEXTS[0])
    np.testing.assert_allclose(got, everything.vector(TEXTS[0]), atol=1e-7)
