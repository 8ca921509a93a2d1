"""Ways to break a model folder, one at a time, chosen by hypothesis.

Each one changes the folder and returns what it did.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

Draw = Callable[[st.SearchStrategy[Any]], Any]
Place = tuple[str | int, ...]

BAD_VALUES: tuple[Any, ...] = (
    *(0, -1, 3, 10**6, 10**12, 10**30, 1.5, float("inf"), float("nan")),
    *("", "x", "../x", None, True, [], ["x"], [None], {}, {"a": 1}),
)
# Fields that a folder doesn't have, but might.
FIELDS: dict[str, tuple[str, ...]] = {
    "config.json": (
        *("architectures", "classifier_from_token", "head_dim", "id2label", "is_causal"),
        *("layer_types", "lora_adaptations", "matryoshka_dimensions", "num_labels"),
        *("partial_rotary_factor", "problem_type", "quantization_config", "rope_scaling"),
        *("sentence_transformers", "sliding_window", "task_instructions", "text_config"),
    ),
    "tokenizer_config.json": ("model_input_names", "truncation_side", "chat_template"),
    "config_sentence_transformers.json": ("activation_fn", "query_length", "skiplist_words"),
    "artifact.metadata": ("similarity", "mask_punctuation"),
    "adapter_config.json": ("alpha_pattern", "use_dora", "modules_to_save", "rank_pattern"),
}
JSON_NAMES = (".json", ".metadata")
MALFORMED = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b"\xff\xfe{}",
    b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"a":' + b"9" * 10_000 + b"}",
)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _name(folder: Path, file: Path) -> str:
    return str(file.relative_to(folder))


def missing(draw: Draw, folder: Path) -> str:
    """A file is gone, or something else is in its place."""
    file = draw(st.sampled_from(_files(folder)))
    instead = draw(st.sampled_from(["nothing", "folder", "loop", "pipe", "pickle"]))
    if instead == "pickle":
        file.rename(file.with_suffix(".bin"))
        return f"{_name(folder, file)} is a pickle"
    file.unlink()
    if instead == "folder":
        file.mkdir()
    elif instead == "loop":
        file.symlink_to(file.name)
    elif instead == "pipe":
        os.mkfifo(file)
    return f"{instead} in place of {_name(folder, file)}"


def garbled(draw: Draw, folder: Path) -> str:
    """A file's bytes are others, or fewer, or too many."""
    file = draw(st.sampled_from(_files(folder)))
    raw = bytearray(file.read_bytes())
    how = draw(st.sampled_from(["cut", "changed", "longer", "malformed", "encoded"]))
    if how == "cut":
        raw = raw[: draw(st.integers(0, len(raw) - 1))]
    elif how == "changed":
        # The beginning says what is where.
        for _ in range(draw(st.integers(1, 8))):
            raw[draw(st.integers(0, min(len(raw), 300) - 1))] = draw(st.integers(0, 255))
    elif how == "longer":
        raw += b"xx"
    elif how == "malformed":
        raw = bytearray(draw(st.sampled_from(MALFORMED)))
    else:
        raw = bytearray(bytes(raw).decode("latin-1").encode("utf-16"))
    file.write_bytes(raw)
    return f"{_name(folder, file)} {how}"


def field(draw: Draw, folder: Path) -> str:
    """A value of a JSON file is another, or absent; or one too many."""
    files = [file for file in _files(folder) if file.suffix in JSON_NAMES]
    file = draw(st.sampled_from(files))
    value = json.loads(file.read_text())
    places = list(_places(value))
    if isinstance(value, dict):
        places += [(name,) for name in FIELDS.get(file.name, ()) if name not in value]
    place = draw(st.sampled_from(places))
    if draw(st.integers(0, 7)) == 0 and _has(value, place):
        bad: Any = "absent"
        changed = _without(value, place)
    else:
        bad = draw(st.sampled_from(BAD_VALUES))
        changed = _with(value, place, bad)
    file.write_text(json.dumps(changed))
    return f"{_name(folder, file)}: {place} is {bad!r}"


def tensor(draw: Draw, folder: Path) -> str:
    """A tensor is gone, renamed, one more, or of another shape, type or value."""
    files = [file for file in _files(folder) if file.suffix == ".safetensors"]
    file = draw(st.sampled_from(files))
    tensors = load_file(file)
    name = draw(st.sampled_from(sorted(tensors)))
    how = draw(st.sampled_from(sorted(_TENSORS)))
    _TENSORS[how](tensors, name)
    save_file(tensors, file)
    return f"{_name(folder, file)}: {name} {how}"


def _rename(tensors: dict[str, Tensor], name: str) -> None:
    tensors[f"{name}.x"] = tensors.pop(name)


def _change(make: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor], str], None]:
    def change(tensors: dict[str, Tensor], name: str) -> None:
        tensors[name] = make(tensors[name]).contiguous()

    return change


_TENSORS: dict[str, Callable[[dict[str, Tensor], str], None]] = {
    "absent": lambda tensors, name: tensors.__delitem__(name),
    "renamed": _rename,
    "one more": lambda tensors, name: tensors.update({f"{name}.x": torch.zeros(1)}),
    "flat": _change(torch.flatten),
    "turned": _change(lambda value: value.T if value.dim() == 2 else value[None]),
    "a number": _change(lambda value: torch.zeros(())),
    "empty": _change(lambda value: value[:0]),
    "short": _change(lambda value: value[:-1]),
    "int8": _change(lambda value: value.to(torch.int8)),
    "bool": _change(lambda value: value > 0),
    "complex": _change(lambda value: value.to(torch.complex64)),
    "float64": _change(lambda value: value.double()),
    "float8": _change(lambda value: value.to(torch.float8_e4m3fn)),
    "not a number": _change(lambda value: value * float("nan")),
}


def _places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Where values are, of long maps and lists the first ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items)[:30]:
        yield (*above, key)
        if isinstance(inner, dict | list) and len(above) < 3:
            yield from _places(inner, (*above, key))


def _has(value: Any, place: Place) -> bool:
    return len(place) > 1 or place[0] in value or isinstance(value, list)


def _with(value: Any, place: Place, new: Any) -> Any:
    value = inner = copy.deepcopy(value)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    return value


def _without(value: Any, place: Place) -> Any:
    value = inner = copy.deepcopy(value)
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return value


BREAKAGES = (missing, garbled, field, field, field, tensor)


def broken(draw: Draw, source: Path, target: Path) -> str:
    """Copies `source` to `target` and breaks it; what was done."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    way: Callable[[Draw, Path], str] = draw(st.sampled_from(BREAKAGES))
    return way(draw, target)
