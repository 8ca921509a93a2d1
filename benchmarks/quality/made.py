"""Models made of MiniLM's weights, where no package ships one of the kind.

A classifier and a reranker that learn from the data here, a table of token vectors, and a ColBERT
model with a random projection: real enough that a wrong number changes the ranking.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

from benchmarks import models
from benchmarks.quality.data import Data, Retrieval
from cenote.loader.hub import resolve

STATIC_SIZE = 256
STEPS, BATCH, LENGTH = 40, 16, 64


def _minilm() -> Path:
    return resolve("minilm", None).folder


def colbert(data: Data, folder: Path) -> None:
    """MiniLM's token vectors under a random projection."""
    models.colbert(folder)


def static(data: Data, folder: Path) -> None:
    """Model2Vec's recipe (Tulkens & van Dongen 2024): each token's own vector, its principal parts,
    and less weight for frequent tokens, which are those with small ids."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    encoder = SentenceTransformer(str(_minilm()), device="cpu")
    vocabulary = encoder.tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    vectors = torch.from_numpy(encoder.encode(tokens, batch_size=512))
    _, _, directions = torch.pca_lowrank(vectors, STATIC_SIZE)
    weights = torch.log1p(torch.arange(1, len(tokens) + 1))
    table = (vectors - vectors.mean(0)) @ directions * weights[:, None]
    tokenizer = encoder.tokenizer.backend_tokenizer
    # The reference says that it has no limit, but would cut texts where the tokenizer does.
    tokenizer.no_truncation()
    module = StaticEmbedding(tokenizer, embedding_weights=table.numpy())
    SentenceTransformer(modules=[module, Normalize()], device="cpu").save(str(folder))


def polarity_classifier(data: Data, folder: Path) -> None:
    """MiniLM with two classes: a linear head that learns from half of the sentences."""
    learn, _ = data.polarity()
    model, tokenizer = _classifier(labels=2)
    with torch.no_grad():
        encoded = [tokenizer(text, return_tensors="pt") for text in learn.texts]
        rows = torch.cat([model.bert(**item).pooler_output for item in encoded])
    targets = torch.tensor(learn.positive).long()
    head = model.classifier
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=200)

    def loss() -> Tensor:
        optimiser.zero_grad()
        found = F.cross_entropy(head(rows), targets) + 1e-2 * head.weight.square().sum()
        found.backward()
        return found

    optimiser.step(loss)
    _save(model, tokenizer, folder)


def cross_encoder(data: Data, folder: Path) -> None:
    """MiniLM that learns, in a minute, which paper has a tag's name; `reranked` is the test."""
    learn = data.semanlink()
    random = np.random.default_rng(0)
    pairs = [(at, paper) for at in range(0, len(learn.queries), 2) for paper in learn.relevant[at]]
    model, tokenizer = _classifier(labels=1)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        chosen = [pairs[at] for at in random.integers(len(pairs), size=BATCH // 2)]
        wrong = [(at, int(random.integers(len(learn.documents)))) for at, _ in chosen]
        texts = [learn.queries[at] for at, _ in (*chosen, *wrong)]
        papers = [learn.documents[paper] for _, paper in (*chosen, *wrong)]
        cut = {"truncation": "longest_first", "max_length": LENGTH, "padding": True}
        logits = model(**tokenizer(texts, papers, return_tensors="pt", **cut)).logits[:, 0]
        targets = torch.tensor([1.0] * len(chosen) + [0.0] * len(wrong))
        F.binary_cross_entropy_with_logits(logits, targets).backward()
        optimiser.step()
        optimiser.zero_grad()
    _save(model.eval(), tokenizer, folder)


def reranked(data: Data, queries: int = 30, others: int = 15) -> list[tuple[str, Retrieval]]:
    """Queries that the reranker has not learnt from, each with its papers and some others."""
    whole = data.semanlink()
    random = np.random.default_rng(1)
    found = []
    for at in range(1, 2 * queries, 2):
        wanted = sorted(whole.relevant[at])[:10]
        chance = random.permutation(len(whole.documents)).tolist()
        rest = [paper for paper in chance if paper not in whole.relevant[at]][:others]
        # The relevant ones last, so that equal scores gain nothing.
        documents = [whole.documents[paper] for paper in (*rest, *wanted)]
        relevant = set(range(len(rest), len(documents)))
        found.append((whole.queries[at], Retrieval([whole.queries[at]], documents, [relevant])))
    return found


def _classifier(labels: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    source = _minilm()
    model = transformers.BertForSequenceClassification.from_pretrained(source, num_labels=labels)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(source)


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
