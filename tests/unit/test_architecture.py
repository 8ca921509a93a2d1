"""The architecture's rules, read from the source: import direction, cycles, names and sizes."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "cenote"

# Imports go down only. Rooms on one level may know each other as long as there is no cycle.
LEVELS: dict[str, float] = {
    "cli": 6,
    "__main__": 6,
    "server": 5,
    "llm": 5,
    "progress": 0,
    "": 5,
    "processors": 4,
    "engine": 3,
    "runner": 2,
    "models": 1.2,
    "poolers": 1.2,
    "layers": 1.1,
    "kernels": 1,
    "loader": 1,
    "_native": 0.5,
    "errors": 0,
    "params": 0,
    "step": 0,
    "outputs": 0,
    "config": 0,
    "log": 0,
    "garbage": 0,
}

# What only some places may import. Everything under a prefix counts ("starlette" and its parts).
CONFINED: dict[str, tuple[str, ...]] = {
    "fastapi": ("server",),
    "starlette": ("server",),
    "uvicorn": ("server",),
    "typer": ("cli",),
    "sentence_transformers": ("cli.references",),
    "transformers": ("cli.references", "models.transformers_library"),
    "torch": ("runner", "models", "poolers", "layers", "kernels", "loader", "engine.core"),
    "cenote.runner": ("runner", "engine.core", "engine.flights"),
    "cenote._native": ("kernels",),
}

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its name below `cenote` ("" is the package itself)."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(name: str) -> Iterator[tuple[str, int]]:
    """Absolute names that a module imports anywhere in its text, with line numbers."""
    path = modules()[name]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            assert node.module is not None
            for alias in node.names:
                yield from [(_submodule(node.module, alias.name), node.lineno)]


def _submodule(module: str, attribute: str) -> str:
    """`from a.b import c` means module a.b.c where that is one, else a.b."""
    joined = f"{module}.{attribute}"
    return joined if joined.removeprefix("cenote.") in modules() else module


def own_imports(name: str) -> Iterator[tuple[str, int]]:
    """The imports of a module that stay inside the package, as names below `cenote`."""
    for target, line in imports(name):
        if target == "cenote" or target.startswith("cenote."):
            yield target.removeprefix("cenote").removeprefix("."), line


def level(name: str) -> float:
    room = name.split(".")[0]
    assert room in LEVELS, f"{name}: no room of the architecture; see docs/architecture.md"
    return LEVELS[room]


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("name", modules())
def test_imports_go_down(name: str) -> None:
    upward = [
        f"{modules()[name].relative_to(ROOT)}:{line} imports cenote.{target}"
        for target, line in own_imports(name)
        if level(target) > level(name)
    ]
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize("name", modules())
def test_libraries_stay_where_they_belong(name: str) -> None:
    strays = [
        f"{modules()[name].relative_to(ROOT)}:{line} imports {target}"
        for target, line in imports(name)
        for library, homes in CONFINED.items()
        if within(target, (library,)) and not within(name, homes)
    ]
    assert not strays, "\n".join(strays)


def test_no_import_cycle() -> None:
    graph = {name: {target for target, _ in own_imports(name)} - {name} for name in modules()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("folder", ["src", "benchmarks", "examples", "tests"])
def test_no_file_is_named_for_nothing(folder: str) -> None:
    bad = [path for path in (ROOT / folder).rglob("*.py") if path.stem in FORBIDDEN_NAMES]
    assert not bad, f"name these for what they hold: {bad}"


@pytest.mark.parametrize("folder", ["src", "benchmarks", "examples"])
def test_files_and_functions_are_small(folder: str) -> None:
    too_long = []
    for path in (ROOT / folder).rglob("*.py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            too_long.append(f"{path.relative_to(ROOT)}: {lines} lines (most: {MAX_FILE_LINES})")
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    too_long.append(
                        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines "
                        f"(most: {MAX_FUNCTION_LINES})"
                    )
    assert not too_long, "\n".join(too_long)


@pytest.mark.parametrize("name", modules())
def test_every_module_says_what_it_is(name: str) -> None:
    assert ast.get_docstring(tree(modules()[name])), f"{modules()[name]} has no docstring"


def loaded_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement."""
    code = f"{statement}\nimport sys\nprint(*sorted(m for m in sys.modules if '.' not in m))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import cenote",
        "import cenote.cli.main",
        "import cenote.server.app, cenote.server.run",
        "import cenote.processors.registry, cenote.engine.client, cenote.loader.hub",
    ],
)
def test_the_api_process_starts_without_torch(statement: str) -> None:
    heavy = loaded_after(statement) & {"torch", "transformers", "sentence_transformers", "scipy"}
    assert not heavy


def test_public_names_exist_and_are_documented() -> None:
    package = importlib.import_module("cenote")
    assert {"LLM", "PoolingParams", "CenoteError"} <= set(package.__all__)
    for name in package.__all__:
        value = getattr(package, name)
        if callable(value):
            assert value.__doc__, f"cenote.{name} has no docstring"
