"""An mteb task through the OpenAI-compatible path gives the result of the model run offline.

mteb's own tasks come from a hub; this one is made of the word ratings that vaderSentiment ships:
how alike two words are is how near people rated their sentiment.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from test_serve_minilm import Served

PAIRS = 200

for name in ("mteb", "vaderSentiment"):
    pytest.importorskip(name, reason=f"{name} (extra clients) is not installed")


def word_pairs() -> dict[str, list[Any]]:
    """Pairs of words and how alike they are, from 0 to 8."""
    spec = find_spec("vaderSentiment")
    assert spec is not None
    assert spec.origin is not None
    lines = (Path(spec.origin).parent / "vader_lexicon.txt").read_text("utf-8").splitlines()
    rated = [line.split("\t")[:2] for line in lines]
    words = [(word, float(rating)) for word, rating in rated if word.isalpha()]
    chosen = random.Random(0).sample(words, 2 * PAIRS)
    left, right = chosen[:PAIRS], chosen[PAIRS:]
    return {
        "sentence1": [word for word, _ in left],
        "sentence2": [word for word, _ in right],
        "score": [8 - abs(a - b) for (_, a), (_, b) in zip(left, right, strict=True)],
    }


def make_task() -> Any:
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class WordSentiment(AbsTaskSTS):
        metadata = TaskMetadata(
            name="WordSentiment",
            description="Likeness of words by their rated sentiment.",
            dataset={"path": "local/words", "revision": "1"},
            type="STS",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )
        min_score = 0
        max_score = 8

        def load_data(self, *args: Any, **kwargs: Any) -> None:
            self.dataset = DatasetDict({"test": Dataset.from_dict(word_pairs())})
            self.data_loaded = True

    return WordSentiment()


def score(model: Any) -> float:
    import mteb

    result = mteb.evaluate(model, make_task(), cache=None, show_progress_bar=False)
    return float(result.task_results[0].get_score())


@pytest.fixture
def url() -> Iterator[str]:
    served = Served("--dtype", "float32")
    yield served.url
    served.stop()


def test_an_mteb_task_gives_the_offline_result(url: str, minilm_path: Path) -> None:
    from mteb.models.openai_wrappers import OpenAIAPIEncodeWrapper
    from sentence_transformers import SentenceTransformer

    offline = score(SentenceTransformer(str(minilm_path), device="cpu"))
    client = OpenAIAPIEncodeWrapper(url, "minilm", modalities=["text"], use_chat_template=False)
    online = score(client)
    assert abs(offline) > 0.01
    assert online == pytest.approx(offline, abs=1e-4)
