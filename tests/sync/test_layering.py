"""`sync` is sans-IO and stands on nothing above it (docs/internals)."""

from __future__ import annotations

import ast
from pathlib import Path

import sync

ALLOWED = {"sync", "blake3", "nacl", "zstandard"}
PURE = {
    "__future__",
    "collections",
    "dataclasses",
    "msgspec",
    "enum",
    "functools",
    "itertools",
    "re",
    "struct",
    "typing",
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_no_io_and_nothing_above() -> None:
    modules = sorted(Path(sync.__path__[0]).glob("*.py"))
    assert len(modules) > 10
    for module in modules:
        assert imported(module) <= ALLOWED | PURE, module.name


def test_the_facade_lists_what_it_offers() -> None:
    assert sorted(sync.__all__) == sync.__all__
    offered = {name for name in vars(sync) if not name.startswith("_")}
    modules = {path.stem for path in Path(sync.__path__[0]).glob("*.py")}
    assert offered - modules - {"annotations"} == set(sync.__all__)
