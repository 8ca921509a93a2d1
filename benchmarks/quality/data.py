"""Texts with labels from people, out of packages that ship them.

`Data` finds files anywhere under one folder; it knows nothing of models.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Tags with more papers than these say little of what a paper is about.
MOST_PAPERS = 30


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Queries, documents, and the numbers of each query's relevant documents."""

    queries: list[str]
    documents: list[str]
    relevant: list[set[int]]


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts, and whether each one is positive."""

    texts: list[str]
    positive: list[bool]


@dataclass(frozen=True, slots=True)
class Data:
    """The unpacked packages' folder."""

    folder: Path

    def find(self, name: str) -> Path:
        """The first file whose path ends with `name`; exits where there is none."""
        found = (path for path in self.folder.rglob(Path(name).name) if path.match(name))
        path = next(iter(sorted(found)), None)
        if path is None:
            sys.exit(
                f"{self.folder} has no {name}: see the head of benchmarks/quality/__main__.py."
            )
        return path

    def lee(self) -> tuple[list[str], NDArray[np.float64]]:
        """50 news texts and people's similarity of each two of them, `[50, 50]`."""
        texts = self.find("lee.cor").read_text("latin-1").splitlines()
        return texts, np.loadtxt(self.find("similarities0-1.txt"))

    def semanlink(self) -> Retrieval:
        """Names of tags, and the papers that people gave these tags."""
        papers = json.loads(self.find("semanlink/arxiv.json").read_text("utf-8"))
        tags = json.loads(self.find("semanlink/tags.json").read_text("utf-8"))
        tagged: dict[str, set[int]] = {}
        for at, paper in enumerate(papers):
            for tag in paper["tag"]:
                if tags.get(tag, {}).get("prefLabel"):
                    tagged.setdefault(tag, set()).add(at)
        kept = {tag: found for tag, found in tagged.items() if len(found) <= MOST_PAPERS}
        return Retrieval(
            [tags[tag]["prefLabel"][0] for tag in kept],
            [f"{paper['title']}. {paper['arxiv_summary']}" for paper in papers],
            list(kept.values()),
        )

    def polarity(self) -> tuple[Labelled, Labelled]:
        """Sentences of film reviews: every other one to learn from, the rest to test."""
        lines = self.find("pang_lee_polarity.cor").read_text("latin-1").splitlines()
        pairs = [line.split(" ", 1) for line in lines]
        halves = (pairs[::2], pairs[1::2])
        learn, test = (
            Labelled([text for _, text in half], [label == "__label__pos" for label, _ in half])
            for half in halves
        )
        return learn, test

    def reactions(self) -> list[str]:
        """Chemical reactions as SMILES, without numbers of atoms."""
        pattern = re.compile(r'"([^"\s:]*>>[^"\s:]*)"')
        files = self.find("tests/test_mapper.py").parent.glob("*.py")
        found = {text for path in files for text in pattern.findall(path.read_text("utf-8"))}
        return sorted(text for text in found if len(text) > 20)


def spearman(left: NDArray[np.floating], right: NDArray[np.floating]) -> float:
    """Rank correlation of two lists of numbers."""
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Ranks from 0; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = (ends - counts + ends - 1) / 2
    return means[places]


def ndcg(scores: Sequence[NDArray[np.floating]], relevant: Sequence[set[int]]) -> float:
    """Mean nDCG@10 of each query's scores of documents; documents not relevant gain nothing."""
    discounts = 1 / np.log2(np.arange(10) + 2)
    gains = []
    for row, wanted in zip(scores, relevant, strict=True):
        best = np.argsort(-row, kind="stable")[:10]
        own = np.isin(best, list(wanted))
        gains.append(discounts[: len(best)][own].sum() / discounts[: len(wanted)].sum())
    return float(np.mean(gains))
