"""Resolving what a user calls a model to a folder, without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cenote.errors import ModelLoadError
from cenote.loader import hub


@pytest.fixture
def offline_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, in offline mode; constants are read at import, so they are patched."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def _put_in_cache(cache: Path, model: str, revision: str, commit: str) -> Path:
    repo = cache / f"models--{model.replace('/', '--')}"
    folder = repo / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (repo / "refs").mkdir()
    (repo / "refs" / revision).write_text(commit)
    return folder


def test_builtin_name_is_the_packages_folder() -> None:
    found = hub.resolve("minilm", None)
    assert (found.folder / "model.safetensors").is_file()
    assert (found.name, found.revision) == ("minilm", "built-in")


def test_builtin_without_its_package_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"pip install 'cenote\[minilm\]'"):
        hub.resolve("minilm")


def test_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    found = hub.resolve(str(tmp_path))
    assert found == hub.ResolvedModel(tmp_path.resolve(), str(tmp_path), "local")


@pytest.mark.parametrize("name", ["minilm", "."])
def test_revision_of_a_local_model_is_refused(name: str) -> None:
    with pytest.raises(ModelLoadError, match="revision='v2'"):
        hub.resolve(name, "v2")


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c", "~/nowhere-at-all"])
def test_missing_folder_is_named(name: str) -> None:
    with pytest.raises(ModelLoadError, match="does not exist"):
        hub.resolve(name)


def test_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ModelLoadError, match=r"is a file.*config\.json"):
        hub.resolve(str(file))


@pytest.mark.parametrize("name", ["", "no spaces", "-flag", "x/é"])
def test_name_that_can_be_nothing_is_refused(name: str) -> None:
    with pytest.raises(ModelLoadError, match="built-in name"):
        hub.resolve(name)


def test_offline_without_the_model_says_so(offline_cache: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"HF_HUB_OFFLINE is set") as caught:
        hub.resolve("someone/some-model")
    assert str(offline_cache) in caught.value.message


def test_offline_model_comes_from_the_cache_with_its_commit(offline_cache: Path) -> None:
    commit = "a" * 40
    folder = _put_in_cache(offline_cache, "someone/some-model", "main", commit)
    found = hub.resolve("someone/some-model")
    assert found == hub.ResolvedModel(folder, "someone/some-model", commit)


def test_offline_revision_that_is_not_cached_is_refused(offline_cache: Path) -> None:
    _put_in_cache(offline_cache, "someone/some-model", "main", "a" * 40)
    with pytest.raises(ModelLoadError, match="revision v2"):
        hub.resolve("someone/some-model", "v2")


def test_only_safe_files_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    asked: dict[str, list[str]] = {}

    def download(model: str, **options: list[str]) -> str:
        asked.update(options)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    hub.resolve("someone/some-model")
    wanted = ["model.safetensors", "2_Dense/model.safetensors", "artifact.metadata", "vocab.txt"]
    # BGE-M3's two small heads are the only pickles, opened as bare tensors.
    wanted += ["sparse_linear.pt", "colbert_linear.pt"]
    unwanted = ["pytorch_model.bin", "onnx/config.json", "modeling.py", "other.pt"]
    assert set(
        filter_repo_objects(
            wanted + unwanted,
            allow_patterns=asked["allow_patterns"],
            ignore_patterns=asked["ignore_patterns"],
        )
    ) == set(wanted)


def test_hub_module_imports_no_torch() -> None:
    code = "import sys, cenote.loader.hub as h; h.resolve('minilm'); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
