"""What is measured of a model, twice: of ours through `LLM`, and of the reference library.

A measure is one number. Where no package has labels for a kind of model, it is the share of results
that are the reference's own, whose share is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from benchmarks.quality.data import Data, ndcg, spearman
from benchmarks.quality.made import LENGTH, reranked
from cenote import LLM

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]
STRATEGIES = ("simple", "first", "average", "max")
CUT: dict[str, Any] = {"truncate_prompt_tokens": -1, "progress": False}


class Measure:
    """`reference` reads a folder, `ours` a started engine; both give one number."""

    name: str

    def reference(self, folder: Path, data: Data) -> float:
        """The reference library's number."""
        raise NotImplementedError

    def ours(self, llm: LLM, data: Data) -> float:
        """Cenote's number."""
        raise NotImplementedError


class Dense(Measure):
    """Vectors of texts, by sentence-transformers."""

    def reference(self, folder: Path, data: Data) -> float:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder), device="cpu")
        return self.of(lambda texts: np.asarray(model.encode(list(texts)), np.float32), data)

    def ours(self, llm: LLM, data: Data) -> float:
        def encode(texts: Sequence[str]) -> Vectors:
            return np.stack([item.embedding for item in llm.embed(list(texts), **CUT)])

        return self.of(encode, data)

    def of(self, encode: Encode, data: Data) -> float:
        """The number of what makes vectors of texts."""
        raise NotImplementedError


class Lee(Dense):
    """Rank correlation of cosines with people's similarity of 50 × 50 texts."""

    name = "Lee, Spearman"

    def of(self, encode: Encode, data: Data) -> float:
        texts, people = data.lee()
        vectors = encode(texts)
        pairs = np.triu_indices(len(texts), 1)
        return spearman((vectors @ vectors.T)[pairs], people[pairs])


class Semanlink(Dense):
    """Papers found by a tag's name; papers without the tag count as wrong."""

    name = "Semanlink, nDCG@10"

    def of(self, encode: Encode, data: Data) -> float:
        asked = data.semanlink()
        scores = encode(asked.queries) @ encode(asked.documents).T
        return ndcg(list(scores), asked.relevant)


class LastToken(Lee):
    """A decoder's last rows, by transformers."""

    def reference(self, folder: Path, data: Data) -> float:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

        def encode(texts: Sequence[str]) -> Vectors:
            with torch.inference_mode():
                ids = [tokenizer(text, return_tensors="pt").input_ids for text in texts]
                rows = torch.stack([model(row).last_hidden_state[0, -1] for row in ids])
            return torch.nn.functional.normalize(rows, dim=-1).numpy()

        return self.of(encode, data)


class Sparse(Semanlink):
    """Dot products of sparse vectors, by sentence-transformers' SparseEncoder."""

    def reference(self, folder: Path, data: Data) -> float:
        from sentence_transformers import SparseEncoder
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        body = Transformer(str(folder), transformer_task="fill-mask")
        body.max_seq_length = 512
        model = SparseEncoder(modules=[body, SpladePooling()], device="cpu")
        return self.of(lambda texts: _dense_rows(model, texts), data)

    def ours(self, llm: LLM, data: Data) -> float:
        size = llm.model_config.vocab_size

        def encode(texts: Sequence[str]) -> Vectors:
            rows = np.zeros((len(texts), size), np.float32)
            for row, item in zip(rows, llm.encode(list(texts), **CUT), strict=True):
                row[item.token_ids] = item.weights
            return rows

        return self.of(encode, data)


def _dense_rows(model: Any, texts: Sequence[str]) -> Vectors:
    rows = model.encode(list(texts), convert_to_sparse_tensor=False, batch_size=8)
    return np.asarray(rows, np.float32)


class MaxSim(Measure):
    """Late interaction, by sentence-transformers' MultiVectorEncoder."""

    name = "Semanlink, nDCG@10"

    def reference(self, folder: Path, data: Data) -> float:
        from sentence_transformers import MultiVectorEncoder

        model = MultiVectorEncoder(str(folder), device="cpu")
        asked = data.semanlink()
        queries = model.encode_query(asked.queries, convert_to_numpy=True)
        documents = model.encode_document(asked.documents, convert_to_numpy=True)
        return ndcg(_max_sim(queries, documents), asked.relevant)

    def ours(self, llm: LLM, data: Data) -> float:
        asked = data.semanlink()
        sides = (("query", asked.queries), ("document", asked.documents))
        rows = [
            [item.embeddings for item in llm.encode(texts, input_type=side, **CUT)]
            for side, texts in sides
        ]
        return ndcg(_max_sim(*rows), asked.relevant)


def _max_sim(queries: Sequence[Any], documents: Sequence[Any]) -> list[Vectors]:
    starts = np.cumsum([0, *(len(rows) for rows in documents[:-1])])
    flat = np.concatenate(documents)
    return [np.maximum.reduceat(rows @ flat.T, starts, axis=1).sum(axis=0) for rows in queries]


class Reranked(Measure):
    """A cross-encoder's scores of each query's papers and some others."""

    name = "Semanlink reranked, nDCG@10"

    def reference(self, folder: Path, data: Data) -> float:
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(str(folder), device="cpu", max_length=LENGTH)
        scored = [
            (model.predict([(query, text) for text in asked.documents]), asked.relevant[0])
            for query, asked in reranked(data)
        ]
        return ndcg([scores for scores, _ in scored], [wanted for _, wanted in scored])

    def ours(self, llm: LLM, data: Data) -> float:
        cut: dict[str, Any] = {"truncate_prompt_tokens": LENGTH, "progress": False}
        scores, wanted = [], []
        for query, asked in reranked(data):
            found = llm.score(query, asked.documents, **cut)
            scores.append(np.array([item.score for item in found]))
            wanted.append(asked.relevant[0])
        return ndcg(scores, wanted)


class Polarity(Measure):
    """Sentences of film reviews told apart, those that the classifier has not learnt from."""

    name = "polarity, accuracy"

    def reference(self, folder: Path, data: Data) -> float:
        _, test = data.polarity()
        found = _top_class(folder, test.texts)
        return float(
            np.mean([bool(top) == own for top, own in zip(found, test.positive, strict=True)])
        )

    def ours(self, llm: LLM, data: Data) -> float:
        _, test = data.polarity()
        found = [int(np.argmax(item.probs)) for item in llm.classify(test.texts, **CUT)]
        return float(
            np.mean([bool(top) == own for top, own in zip(found, test.positive, strict=True)])
        )


class _Agreement(Measure):
    """The share of results that are the reference's, which is asked in `ours`."""

    def reference(self, folder: Path, data: Data) -> float:
        return 1.0


class Entities(_Agreement):
    """Entities of news texts, with their characters, by transformers' pipeline: F1 of all four
    aggregations."""

    name = "entities in Lee's texts, F1 to the pipeline"

    def ours(self, llm: LLM, data: Data) -> float:
        texts, _ = data.lee()
        folder = str(llm.model_config.path)
        pipeline = transformers.pipeline("token-classification", model=folder, device="cpu")
        same = ours = theirs = 0
        for strategy in STRATEGIES:
            found = llm.encode(texts, aggregation_strategy=strategy, **CUT)
            for at, (text, item) in enumerate(zip(texts, found, strict=True)):
                wanted = pipeline(text, aggregation_strategy=strategy)
                left = {(at, e.label, e.word, e.start, e.end) for e in item.entities}
                right = {(at, e["entity_group"], e["word"], e["start"], e["end"]) for e in wanted}
                same += len(left & right)
                ours += len(left)
                theirs += len(right)
        return 2 * same / (ours + theirs)


class Classes(_Agreement):
    """The likeliest of 50 classes of each reaction, by transformers."""

    name = "class of reactions, share as transformers'"

    def ours(self, llm: LLM, data: Data) -> float:
        texts = data.reactions()
        wanted = _top_class(llm.model_config.path, texts)
        found = [int(np.argmax(item.probs)) for item in llm.classify(texts, **CUT)]
        return float(np.mean(np.array(found) == np.array(wanted)))


class Vocabulary(_Agreement):
    """The ten heaviest entries of the vocabulary for each reaction, by transformers' masked LM."""

    name = "vocabulary of reactions, top ten as transformers'"

    def ours(self, llm: LLM, data: Data) -> float:
        texts, folder = data.reactions(), llm.model_config.path
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        found = llm.encode(texts, sparse_top_k=10, **CUT)
        same = 0
        for text, item in zip(texts, found, strict=True):
            with torch.inference_mode():
                logits = model(**tokenizer(text, return_tensors="pt")).logits[0].amax(0)
            same += len({*logits.topk(10).indices.tolist()} & {*item.token_ids.tolist()})
        return same / (10 * len(texts))


def _top_class(folder: Path, texts: Sequence[str]) -> list[int]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        encoded = [tokenizer(text, return_tensors="pt") for text in texts]
        return [int(model(**item).logits[0].argmax()) for item in encoded]
