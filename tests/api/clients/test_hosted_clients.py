"""The clients of OpenAI, Cohere, Voyage and Ollama, and the integrations built on them."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import Everything

TEXTS = ["Where do cenotes come from?", "日本語のテキスト 🙂"]
LONG = "word " * 100
DOCUMENTS = ["one sinkhole", "two birds that sing", "three"]


def vectors(server: Everything, texts: list[str] = TEXTS) -> np.ndarray:
    return np.stack([server.vector(text) for text in texts])


def test_openai(everything: Everything) -> None:
    openai = pytest.importorskip("openai", reason="openai (extra clients) is not installed")
    with openai.OpenAI(base_url=f"{everything.url}/v1", api_key=everything.key) as client:
        answer = client.embeddings.create(model="embedder", input=TEXTS)
        np.testing.assert_array_equal(
            np.float32([item.embedding for item in answer.data]), vectors(everything)
        )
        many = client.embeddings.create(
            model="embedder",
            input=TEXTS[0],
            encoding_format="float",
            extra_body={"embedding_type": ["float", "ubinary"]},
        )
        assert len(many.data[0].embedding["ubinary"]) == 4
        names = [model.id for model in client.models.list()]
    assert names == ["embedder", "reranker", "classifier", "ner"]


@pytest.mark.parametrize("prefix", ["", "/cohere"])
def test_cohere(everything: Everything, prefix: str) -> None:
    cohere = pytest.importorskip("cohere", reason="cohere (extra clients) is not installed")
    client = cohere.ClientV2(api_key=everything.key, base_url=everything.url + prefix)
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    answer = client.embed(
        model="embedder", texts=TEXTS, input_type="search_document", embedding_types=kinds
    )
    wanted = vectors(everything)
    np.testing.assert_array_equal(np.float32(answer.embeddings.float_), wanted)
    packed = np.packbits(wanted > 0, axis=1)
    np.testing.assert_array_equal(np.uint8(answer.embeddings.ubinary), packed)
    np.testing.assert_array_equal(np.array(answer.embeddings.binary) + 128, packed)
    levels = np.clip(np.floor((wanted + 1) / np.float32(2 / 255)), 0, 255)
    np.testing.assert_array_equal(np.array(answer.embeddings.uint8), levels)
    np.testing.assert_array_equal(np.array(answer.embeddings.int8), levels - 128)
    assert len(answer.embeddings.base64) == 2
    assert answer.meta.billed_units.input_tokens > 0
    assert answer.meta.warnings is None
    cut = client.embed(model="embedder", texts=[LONG], input_type="search_query")
    assert cut.meta.warnings == ["texts[0] was truncated."]
    ranked = client.rerank(model="reranker", query="birds", documents=DOCUMENTS, top_n=2)
    assert len(ranked.results) == 2
    with pytest.raises(cohere.NotFoundError, match="'none'"):
        client.rerank(model="none", query="birds", documents=DOCUMENTS)
    with pytest.raises(cohere.BadRequestError, match="context length"):
        client.embed(model="embedder", texts=[LONG], input_type="search_query", truncate="NONE")
    with pytest.raises(cohere.UnauthorizedError):
        cohere.ClientV2(api_key="wrong", base_url=everything.url + prefix).rerank(
            model="reranker", query="a", documents=["b"]
        )


def test_cohere_version_1(everything: Everything) -> None:
    cohere = pytest.importorskip("cohere", reason="cohere (extra clients) is not installed")
    client = cohere.Client(api_key=everything.key, base_url=f"{everything.url}/cohere")
    if not hasattr(client, "embed"):
        pytest.skip("this version of cohere has no first API any more")
    answer = client.embed(model="embedder", texts=TEXTS, input_type="search_document")
    floats = getattr(answer.embeddings, "float_", answer.embeddings)
    np.testing.assert_array_equal(np.float32(floats), vectors(everything))
    ranked = client.rerank(
        model="reranker",
        query="birds",
        documents=[{"title": "A", "text": text} for text in DOCUMENTS],
        rank_fields=["title", "text"],
        return_documents=True,
    )
    assert ranked.results[0].document.text in DOCUMENTS


@pytest.mark.parametrize("prefix", ["/v1", "/voyage/v1"])
@pytest.mark.parametrize("dtype", ["float", "int8", "uint8", "binary", "ubinary"])
def test_voyage(everything: Everything, prefix: str, dtype: str) -> None:
    voyageai = pytest.importorskip("voyageai", reason="voyageai (extra clients) is not installed")
    client = voyageai.Client(api_key=everything.key, base_url=everything.url + prefix)
    answer = client.embed(TEXTS, model="embedder", input_type="document", output_dtype=dtype)
    wanted = vectors(everything)
    if dtype == "float":
        np.testing.assert_array_equal(np.float32(answer.embeddings), wanted)
    elif dtype.endswith("binary"):
        shift = 128 if dtype == "binary" else 0
        packed = np.packbits(wanted > 0, axis=1)
        np.testing.assert_array_equal(np.array(answer.embeddings) + shift, packed)
    else:
        assert np.array(answer.embeddings).shape == (2, 32)
    assert answer.total_tokens > 0
    ranked = client.rerank("birds", DOCUMENTS, model="reranker", top_k=2)
    assert len(ranked.results) == 2
    assert ranked.results[0].document == DOCUMENTS[ranked.results[0].index]
    cut = client.embed([LONG], model="embedder")
    assert cut.total_tokens == 64
    with pytest.raises(voyageai.error.InvalidRequestError, match="context length"):
        client.embed([LONG], model="embedder", truncation=False)
    with pytest.raises(voyageai.error.AuthenticationError, match="API key"):
        voyageai.Client(api_key="wrong", base_url=everything.url + prefix).embed(["a"], "embedder")


@pytest.mark.parametrize("prefix", ["", "/ollama"])
def test_ollama(everything: Everything, prefix: str) -> None:
    ollama = pytest.importorskip("ollama", reason="ollama (extra clients) is not installed")
    headers = {"Authorization": f"Bearer {everything.key}"}
    client = ollama.Client(host=everything.url + prefix, headers=headers)
    answer = client.embed(model="embedder", input=TEXTS)
    np.testing.assert_array_equal(np.float32(answer.embeddings), vectors(everything))
    assert answer.prompt_eval_count > 0
    one = client.embeddings(model="embedder", prompt=TEXTS[0])
    np.testing.assert_array_equal(np.float32(one.embedding), everything.vector(TEXTS[0]))
    assert next(model.model for model in client.list().models) == "embedder"
    assert list(client.embed(model="embedder", input=[]).embeddings) == []
    with pytest.raises(ollama.ResponseError, match="context length"):
        client.embed(model="embedder", input=LONG, truncate=False)
    with pytest.raises(ollama.ResponseError, match="'none'") as missing:
        client.embed(model="none", input="a")
    assert missing.value.status_code == 404


def test_langchain_openai(everything: Everything) -> None:
    module = pytest.importorskip(
        "langchain_openai", reason="langchain-openai (extra clients) is not installed"
    )
    client = module.OpenAIEmbeddings(
        model="embedder",
        base_url=f"{everything.url}/v1",
        api_key=everything.key,
        # Else it sends token ids of OpenAI's own tokenizer, which mean other words here.
        check_embedding_ctx_length=False,
    )
    np.testing.assert_allclose(client.embed_documents(TEXTS), vectors(everything), atol=1e-7)
    np.testing.assert_allclose(client.embed_query(TEXTS[0]), everything.vector(TEXTS[0]), atol=1e-7)


def test_llama_index_openai_like(everything: Everything) -> None:
    module = pytest.importorskip(
        "llama_index.embeddings.openai_like",
        reason="llama-index-embeddings-openai-like (extra clients) is not installed",
    )
    client = module.OpenAILikeEmbedding(
        model_name="embedder", api_base=f"{everything.url}/v1", api_key=everything.key
    )
    np.testing.assert_allclose(
        client.get_text_embedding_batch(TEXTS), vectors(everything), atol=1e-7
    )


def test_haystack(everything: Everything, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip("haystack", reason="haystack-ai (extra clients) is not installed")
    pytest.importorskip(
        "haystack_integrations.components.rankers.cohere",
        reason="cohere-haystack (extra clients) is not installed",
    )
    from haystack import Document
    from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker

    key = Secret.from_token(everything.key)
    where = {"api_key": key, "api_base_url": f"{everything.url}/v1", "model": "embedder"}
    one = OpenAITextEmbedder(**where).run(TEXTS[0])["embedding"]
    np.testing.assert_allclose(one, everything.vector(TEXTS[0]), atol=1e-7)
    documents = [Document(content=text) for text in DOCUMENTS]
    embedded = OpenAIDocumentEmbedder(**where, progress_bar=False).run(documents)["documents"]
    np.testing.assert_allclose(
        [item.embedding for item in embedded], vectors(everything, DOCUMENTS), atol=1e-7
    )
    ranker = CohereRanker(
        model="reranker", api_key=key, api_base_url=f"{everything.url}/cohere", top_k=2
    )
    assert len(ranker.run(query="birds", documents=documents)["documents"]) == 2
