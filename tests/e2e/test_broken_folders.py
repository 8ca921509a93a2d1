"""A broken model folder either works, or is refused in a sentence that names what is broken.

Never another exception, never a hang, never memory without bound: not in the library, and not on
the command line.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from breakages import FIELDS, broken
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from safetensors import safe_open
from tiny_folders import FORMS, make_folder, put

from cenote import LLM
from cenote.errors import CenoteError, ModelLoadError

MEMORY = 2 << 30  # bytes of addresses more than before
SECONDS = 20
_ABSENT = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
    ],
    "special_tokens": {},
}
TEXTS = ["a", "how do you reset it", "emoji 😀 naïve"]
EXAMPLES = 200
# What a message may name besides files, fields and tensors.
THINGS = {"missing parameter", "text model", "tokenizer", "pickled weights", "its weights"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    return {form: make_folder(form, root / form) for form in FORMS}


@contextmanager
def bounded() -> Iterator[None]:
    """In less than so much more memory and time."""

    def late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"Not done after {SECONDS} seconds.")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(folder: Path) -> list[np.ndarray[Any, Any]]:
    """Loads a folder, with its adapter if it has one, and runs it on a few texts."""
    adapter = folder / "adapter"
    adapters = (f"own={adapter}",) if adapter.is_dir() else ()
    options: dict[str, Any] = {"adapter": "own"} if adapters else {}
    with LLM(str(folder), dtype="float32", threads=1, adapters=adapters) as llm:
        if "embed" in llm.supported_tasks:
            return [item.embedding for item in llm.embed(TEXTS, progress=False, **options)]
        scores = llm.score("who", TEXTS, progress=False)
        return [np.array(item.score) for item in scores]


def names_of(folder: Path) -> set[str]:
    """Everything in a folder that a message may name: files, fields and tensors."""
    found = {name for names in FIELDS.values() for name in names}
    for path in folder.rglob("*"):
        found.add(path.name)
        if path.suffix in (".json", ".metadata") and path.name != "tokenizer.json":
            value = json.loads(path.read_text())
            found |= set(value) if isinstance(value, dict) else set()
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as handle:
                found |= set(handle.keys())
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_folder_works(form: str, folders: dict[str, Path]) -> None:
    with bounded():
        for result in run(folders[form]):
            assert np.isfinite(result).all()


@pytest.mark.parametrize(
    ("form", "file", "change", "named"),
    [
        ("embedder", "config.json", {"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ("embedder", "config.json", {"vocab_size": 10**12}, "vocab_size"),
        ("embedder", "config.json", {"hidden_size": 10**6}, "embeddings.word_embeddings.weight"),
        ("embedder", "config.json", {"max_position_embeddings": None}, "max_position_embeddings"),
        ("embedder", "2_Dense/config.json", {"out_features": 10**12}, "out_features"),
        ("decoder", "config.json", {"num_attention_heads": 3}, "config.json"),
        ("decoder", "config.json", {"rope_parameters": {"factor": "x"}}, "factor"),
        ("decoder", "config.json", {"classifier_from_token": ["a"]}, "LlamaModel"),
        ("decoder", "config.json", {"quantization_config": {"quant_method": "awq"}}, "awq"),
        ("cross_encoder", "config.json", {"id2label": {}, "num_labels": 10**12}, "num_labels"),
        ("colbert", "artifact.metadata", {"query_token_id": 7}, "query_token_id"),
        ("embedder", "sentence_bert_config.json", {"max_seq_length": True}, "max_seq_length"),
        ("cross_encoder", "config.json", {"classifier_from_token": ["a", "b"]}, "['a', 'b']"),
        ("embedder", "tokenizer.json", {"post_processor": _ABSENT}, "tokenizer can't encode"),
    ],
)
def test_what_asks_for_too_much_or_for_nonsense_is_named(
    form: str,
    file: str,
    change: dict[str, Any],
    named: str,
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    folder = shutil.copytree(folders[form], tmp_path / "model")
    put(folder, file, {**json.loads((folder / file).read_text()), **change})
    with bounded(), pytest.raises(ModelLoadError, match=re.escape(named)):
        run(folder)


@pytest.mark.parametrize(
    ("module", "named"),
    [
        ({"type": "sentence_transformers.models.Pooling", "path": "../other"}, "'../other'"),
        ({"type": "sentence_transformers.models.Pooling", "path": "nowhere"}, "nowhere"),
        ({"type": "sentence_transformers.models.LSTM", "path": ""}, "'LSTM'"),
        ({"type": "own_code.Module", "path": ""}, "'own_code.Module'"),
        ({"path": ""}, "modules.json"),
    ],
)
def test_a_module_that_is_not_there_or_not_known_is_named(
    module: dict[str, str], named: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["embedder"], tmp_path / "model")
    put(folder, "modules.json", [module])
    with bounded(), pytest.raises(ModelLoadError, match=re.escape(named)):
        run(folder)


def test_the_command_line_says_it_in_a_sentence(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["embedder"], tmp_path / "model")
    (folder / "config.json").write_text("[" * 100_000)
    command = [sys.executable, "-m", "cenote", "serve", str(folder), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("config.json is not valid JSON") == 1
    assert "Traceback" not in ended.stderr


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_broken_folder_works_or_is_refused_by_name(
    data: st.DataObject, folders: dict[str, Path], tmp_path: Path
) -> None:
    source = folders[data.draw(st.sampled_from(sorted(folders)))]
    done = broken(data.draw, source, tmp_path / "broken")
    note(f"{source.name}: {done}")
    message, results = "", []
    try:
        with bounded():
            results = run(tmp_path / "broken")
    except ModelLoadError as error:
        message = error.message
        known = names_of(source) | THINGS
        assert any(name in message for name in known), f"{done}: {message}"
    except CenoteError as error:
        message = error.message
    assert message or all(np.isfinite(result).all() for result in results)
