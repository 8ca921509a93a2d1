"""Run by an environment of its own: asks a server through one client, prints the answer as JSON.

python ask.py CLIENT URL KEY
"""

from __future__ import annotations

import json
import sys
from typing import Any

TEXTS = ["Where do cenotes come from?", "a bird"]
DOCUMENTS = ["one sinkhole", "two birds that sing", "three"]


def langchain_cohere(url: str, key: str) -> dict[str, Any]:
    from langchain_cohere import CohereEmbeddings, CohereRerank
    from langchain_core.documents import Document

    where = {"cohere_api_key": key, "base_url": f"{url}/cohere"}
    embedder = CohereEmbeddings(model="embedder", **where)
    reranker = CohereRerank(model="reranker", top_n=2, **where)
    documents = [Document(page_content=text) for text in DOCUMENTS]
    kept = reranker.compress_documents(documents, "birds")
    return {
        "vectors": embedder.embed_documents(TEXTS),
        "query": embedder.embed_query(TEXTS[0]),
        "kept": [item.page_content for item in kept],
    }


def langchain_huggingface(url: str, key: str) -> dict[str, Any]:
    from huggingface_hub import InferenceClient
    from langchain_huggingface import HuggingFaceEndpointEmbeddings

    # The class takes names of the hub only; the client inside it takes addresses.
    embedder = HuggingFaceEndpointEmbeddings(model="any/name", huggingfacehub_api_token=key)
    embedder.client = InferenceClient(model=f"{url}/", token=key)
    return {"vectors": embedder.embed_documents(TEXTS), "query": embedder.embed_query(TEXTS[0])}


def llama_index_cohere(url: str, key: str) -> dict[str, Any]:
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    reranker = CohereRerank(model="reranker", top_n=2, api_key=key, base_url=f"{url}/cohere")
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in DOCUMENTS]
    kept = reranker.postprocess_nodes(nodes, query_str="birds")
    return {"kept": [item.node.get_content() for item in kept]}


def infinity(url: str, key: str) -> dict[str, Any]:
    from infinity_client import AuthenticatedClient
    from infinity_client.api.default import classify, embeddings, health, models, rerank
    from infinity_client.models import ClassifyInput, OpenAIEmbeddingInputText, RerankInput

    def body(kind: Any, **fields: Any) -> Any:
        return kind.from_dict(fields)

    with AuthenticatedClient(base_url=f"{url}/infinity", token=key) as client:
        texts = body(OpenAIEmbeddingInputText, model="embedder", input=TEXTS)
        pairs = body(RerankInput, model="reranker", query="birds", documents=DOCUMENTS, top_n=2)
        labels = body(ClassifyInput, model="classifier", input=TEXTS)
        embedded = embeddings.sync(client=client, body=texts)
        ranked = rerank.sync(client=client, body=pairs)
        classes = classify.sync(client=client, body=labels)
        served = models.sync(client=client)
        return {
            "vectors": [item.embedding for item in embedded.data],
            "kept": [DOCUMENTS[item.index] for item in ranked.results],
            "labels": [[one.label for one in item] for item in classes.data],
            "models": [item.id for item in served.data],
            "health": health.sync_detailed(client=client).status_code,
        }


CLIENTS = {
    client.__name__: client
    for client in (langchain_cohere, langchain_huggingface, llama_index_cohere, infinity)
}

if __name__ == "__main__":
    name, url, key = sys.argv[1:]
    json.dump(CLIENTS[name](url, key), sys.stdout)
