"""Who may import whom, and who may read the environment (ARCHITECTURE.md), checked in the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
OURS = ("backends", "benchmarks", "cli", "dashboard", "hybrisfs", "sync", "tests")

# Package: all that it may import of ours.
ONLY = {
    "sync": ("sync",),
    "backends": ("backends",),
    "cli": ("cli", "dashboard.server", "hybrisfs.client"),
    "dashboard": ("dashboard", "hybrisfs.client"),
    "hybrisfs": ("hybrisfs", "sync", "backends"),
    "hybrisfs.fuse": ("hybrisfs.fuse",),
    "hybrisfs.peers": ("hybrisfs.peers", "hybrisfs.errors", "sync"),
}

# Package: what it must not import.
NEVER = dict.fromkeys(
    ("hybrisfs.filesystem", "hybrisfs.store"),
    ("hybrisfs.fuse", "hybrisfs.mount", "hybrisfs.dispersal.engine", "hybrisfs.daemon", "backends"),
)

READS_THE_ENVIRONMENT = {
    "hybrisfs.home",
    "hybrisfs.fuse.mounting",  # hands it on to fusermount3
}


def modules(package: str) -> list[Path]:
    found = sorted((REPOSITORY / package.replace(".", "/")).rglob("*.py"))
    assert found, package
    return found


def name_of(module: Path) -> str:
    return ".".join(module.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str, module: str) -> Iterator[str]:
    """The dotted names of ours that a module imports, at whatever place in it."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.split(".")[0] in OURS)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("package", ONLY)
def test_imports_only_what_it_may(package: str) -> None:
    wrong = [
        f"{name_of(module)} imports {name}"
        for module in modules(package)
        for name in imports(module.read_text(), name_of(module))
        if not within(name, ONLY[package])
    ]
    assert wrong == []


@pytest.mark.parametrize("package", NEVER)
def test_imports_nothing_that_it_must_not(package: str) -> None:
    wrong = [
        f"{name_of(module)} imports {name}"
        for module in modules(package)
        for name in imports(module.read_text(), name_of(module))
        if within(name, NEVER[package])
    ]
    assert wrong == []


def test_the_environment_is_read_in_one_place() -> None:
    wrong = [
        name_of(module)
        for package in ("sync", "backends", "cli", "dashboard", "hybrisfs")
        for module in modules(package)
        for node in ast.walk(ast.parse(module.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
        and name_of(module) not in READS_THE_ENVIRONMENT
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "import hybrisfs.daemon.main",
        "from hybrisfs.daemon import main",
        "from hybrisfs import daemon",
        "def late():\n    from hybrisfs.daemon.main import main",
        "if TYPE_CHECKING:\n    import hybrisfs.daemon",
    ],
)
def test_no_way_to_write_an_import_escapes(source: str) -> None:
    assert any(within(name, ("hybrisfs.daemon",)) for name in imports(source, "x"))
