"""The documentation tells the truth: its examples run, and its tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"<!-- runs, and prints: (.+?) -->\n```(bash|python)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#:]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:src|tests|scripts|benchmarks|examples|docs|csrc)/[\w./-]*)`")


@dataclass(frozen=True)
class Example:
    """A block of a page that must run and print something."""

    page: str
    language: str
    code: str
    expected: str


EXAMPLES = [
    Example(page.name, language, code, expected)
    for page in PAGES
    for expected, language, code in BLOCK.findall(page.read_text(encoding="utf-8"))
]


def run(example: Example, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a block as a reader would, with `cenote` of this environment on the path."""
    if example.language == "python":
        command = [sys.executable, "-c", example.code]
    else:
        command = ["bash", "-euo", "pipefail", "-c", example.code]
    (folder / "cenote").write_text(f'#!/bin/sh\nexec {sys.executable} -m cenote "$@"\n')
    (folder / "cenote").chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_readme_has_examples_of_both_languages() -> None:
    assert {item.language for item in EXAMPLES if item.page == "README.md"} == {"bash", "python"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda item: f"{item.page}-{item.expected}")
def test_examples_run_and_print_what_is_said(
    example: Example, server_url: str, tmp_path: Path
) -> None:
    code = example.code.replace("http://localhost:8000", server_url)
    done = run(Example(example.page, example.language, code, example.expected), tmp_path)
    assert done.returncode == 0, done.stderr
    assert example.expected in done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=str)
def test_tables_are_those_of_the_code(page: Path) -> None:
    spec = util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert spec is not None
    assert spec.loader is not None
    write_docs = util.module_from_spec(spec)
    spec.loader.exec_module(write_docs)
    text = page.read_text(encoding="utf-8")
    assert write_docs.filled(text) == text, "run scripts/write_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert not missing


def test_every_route_is_in_the_api_page() -> None:
    from cenote.server import routes

    pages = [ROOT / "docs" / name for name in ("api.md", "dialects.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in Path(routes.__path__[0]).glob("*.py")
    )
    paths = re.findall(r'@\w*router\.(?:get|post)\(\s*"([^"]+)"', source)
    # Under a dialect's second prefix a path is the same as without it.
    paths = [path for path in paths if not re.match("/(tei|ollama|vllm/v)", path)]
    assert len(paths) > 10
    missing = [path for path in paths if f"`{path.replace(':path', '')}`" not in text]
    assert not missing


def test_the_map_has_every_room_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d \| ([^|]+) \|", text, re.MULTILINE)
    drawn = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    source = ROOT / "src" / "cenote"
    rooms = {path.parent.name for path in source.glob("*/__init__.py")}
    rooms |= {path.stem for path in source.glob("[!_]*.py")}
    assert drawn == rooms
