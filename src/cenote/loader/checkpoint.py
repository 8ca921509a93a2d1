"""The safetensors files of a folder: which tensors there are, and one tensor at a time.

Pickled weights are never opened. It knows no model and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from cenote.config.files import read_object
from cenote.errors import ModelLoadError

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class Checkpoint:
    """All tensors of a folder by name. Files are memory-mapped: only what is read is loaded.

    Made by `open_checkpoint`, and closed with it. `shapes` costs no reading of weights.
    """

    def __init__(self, handles: dict[str, Any]) -> None:
        self._handles = handles
        self.shapes: dict[str, tuple[int, ...]] = {
            name: tuple(handle.get_slice(name).get_shape()) for name, handle in handles.items()
        }

    def read(self, name: str) -> Tensor:
        """A tensor in the file's own dtype. It may be a view of the file: copy what is kept."""
        tensor: Tensor = self._handles[name].get_tensor(name)
        return tensor


@contextmanager
def open_checkpoint(folder: Path) -> Iterator[Checkpoint]:
    """Opens the weights of `folder`, sharded or in one file. Raises `ModelLoadError`."""
    with ExitStack() as stack:
        handles: dict[str, Any] = {}
        for file in weight_files(folder):
            handle = stack.enter_context(_open(file))
            for name in handle.keys():  # noqa: SIM118  (not a dict)
                if name in handles:
                    raise ModelLoadError(f"{folder}: tensor {name!r} is in two files.")
                handles[name] = handle
        yield Checkpoint(handles)


@contextmanager
def _open(file: Path) -> Iterator[Any]:
    try:
        handle = safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        hint = " It is a Git LFS pointer: run `git lfs pull`." if _is_pointer(file) else ""
        raise ModelLoadError(
            f"{file} is not a complete safetensors file ({error}).{hint}"
        ) from error
    with handle:
        yield handle


def _is_pointer(file: Path) -> bool:
    """Whether a file is what Git leaves in the place of a large one."""
    if not file.is_file():
        return False
    with file.open("rb") as raw:
        return raw.read(20).startswith(b"version https://git")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold a model's weights, by the index where there is one."""
    if index := read_object(folder / _INDEX).get("weight_map"):
        return _listed(folder, index)
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise ModelLoadError(
            f"{folder} has several safetensors files and no {_INDEX}: "
            f"{[file.name for file in found]}."
        )
    raise ModelLoadError(_no_weights(folder))


def _listed(folder: Path, index: Any) -> list[Path]:
    """The files of an index's `weight_map`."""
    if not isinstance(index, dict):
        raise ModelLoadError(f"{folder / _INDEX}: weight_map is not a map of tensors to files.")
    names = sorted(set(map(str, index.values())))
    outside = [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise ModelLoadError(f"{folder / _INDEX} names files outside the folder: {outside}.")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelLoadError(f"{folder}: {_INDEX} names files that are not there: {missing}.")
    return [folder / name for name in names]


def _no_weights(folder: Path) -> str:
    pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    if not pickles:
        return f"{folder} has no weights: no *.safetensors file."
    return (
        f"{folder} has only pickled weights ({', '.join(pickles)}), which can run code when they "
        "are opened and are never loaded. Convert them where you trust them, e.g. with "
        "transformers: AutoModel.from_pretrained(folder).save_pretrained(folder), taking the "
        "architecture's own class instead of AutoModel."
    )
