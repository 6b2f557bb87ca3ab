"""The lock files name everything that is installed, by versions and hashes, and no place to get it from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
PYTHONS = ("3.11", "3.12", "3.13")
LOCKS = ("requirements.lock", "build.lock", "dev.lock")
HASH = re.compile(r" --hash=sha256:[0-9a-f]{64}")


def entries(lock: str) -> list[str]:
    """The lines of a lock file that say something, continued ones as one."""
    text = (PACKAGING / lock).read_text().replace(" \\\n    ", " ")
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def locked(lock: str, python: str) -> dict[str, str]:
    """The version of each library that is installed on Linux with that Python, by its name."""
    there = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    environment = {name: str(value) for name, value in default_environment().items()} | there
    found: dict[str, str] = {}
    for entry in entries(lock):
        one = Requirement(HASH.sub("", entry))
        if one.marker is None or one.marker.evaluate(environment):
            assert one.name not in found, f"{one.name} is there twice for Python {python}"
            found[canonicalize_name(one.name)] = str(one.specifier).removeprefix("==")
    return found


def project() -> Any:
    return tomllib.loads((PACKAGING.parent / "pyproject.toml").read_text())


def wanted(texts: Sequence[str]) -> Iterator[Requirement]:
    """What the project states that it needs, with what it means by extras of its own."""
    for text in texts:
        one = Requirement(text)
        if one.name == "hybrisfs":
            for extra in one.extras:
                yield from wanted(project()["project"]["optional-dependencies"][extra])
        else:
            yield one


def needs(lock: str) -> list[str]:
    """What must be in a lock file."""
    told = project()
    run, build = told["project"]["dependencies"], told["dependency-groups"]["build"]
    building = [*build, *told["build-system"]["requires"]]
    dev = told["project"]["optional-dependencies"]["dev"]
    wholes: dict[str, list[str]] = {
        "requirements.lock": run,
        "build.lock": building,
        "dev.lock": [*run, *building, *dev],
    }
    return wholes[lock]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_what_the_project_needs_is_locked_within_its_range(lock: str, python: str) -> None:
    found = locked(lock, python)
    for one in wanted(needs(lock)):
        version = found.get(canonicalize_name(one.name), "")
        assert version and one.specifier.contains(version), f"{one} but {version!r}: run packaging/lock.sh"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_library_has_one_version_and_hashes(lock: str) -> None:
    for entry in entries(lock):
        assert re.fullmatch(rf"[a-z0-9-]+==[^ ]+( ; [^#\\]+?)?({HASH.pattern})+", entry), entry


@pytest.mark.parametrize("lock", LOCKS)
def test_no_place_is_named(lock: str) -> None:
    assert "://" not in (PACKAGING / lock).read_text()


@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_tested_is_what_is_shipped(python: str) -> None:
    tested = locked("dev.lock", python)
    for lock in ("requirements.lock", "build.lock"):
        assert locked(lock, python).items() <= tested.items()


@pytest.mark.parametrize("script", ["build-deb.sh", "quickstart.sh", "test.sh"])
def test_whoever_installs_takes_nothing_else(script: str) -> None:
    text = (PACKAGING / script).read_text().replace("\\\n", " ")
    calls = [line for line in text.splitlines() if re.search(r"(-m pip|\bpip\b) .*\b(install|wheel)\b", line)]
    assert calls
    for call in calls:
        assert "--no-deps" in call, call
        assert "--no-build-isolation" in call or "--no-index" in call or "build.lock" in call, call
    from_locks = [line for line in text.splitlines() if "--requirement" in line]
    assert len(from_locks) == 2
    assert all("--require-hashes" in line and ".lock" in line for line in from_locks)
