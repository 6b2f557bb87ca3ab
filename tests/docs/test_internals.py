"""The pages about the insides: short, linked, and about code that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.system.device import REPOSITORY

_DOCS = REPOSITORY / "docs"
_INTERNALS = sorted((_DOCS / "internals").glob("*.md"))
_DECISIONS = sorted((_DOCS / "adr").glob("*.md"))
_GLOSSARY = _DOCS / "glossary.md"
_OF_CODE = (*_INTERNALS, *_DECISIONS, _GLOSSARY, REPOSITORY / "CONTRIBUTING.md")
_ROOTS = (REPOSITORY, REPOSITORY / "hybrisfs")

_QUOTED = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./-]+/[\w.-]*\.(?:py|json|lock|sh|toml|md)|[\w./-]+/")
_STATION = re.compile(r"(?<![\w/.-])([a-z_]+/[a-z_]+)(?=[\s),:]|$)")
_ATTRIBUTE = re.compile(r"([A-Z]\w+)\.(\w+)")
_MOST_LINES = {"internals": 150, "adr": 50}
_MOST_TERMS = 60


def _page_name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def _exists(path: str) -> bool:
    return any((root / path).exists() for root in _ROOTS)


@cache
def _code() -> str:
    folders = ("hybrisfs", "sync", "backends", "dashboard", "gateway", "serving", "cli")
    return "\n".join(path.read_text() for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def _figures(text: str) -> Iterator[str]:
    """The drawings in a page, without what they say of places and objects."""
    for figure in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if "\n  v\n" in figure:
            yield figure


@pytest.mark.parametrize("page", _OF_CODE, ids=_page_name)
def test_files_that_are_named_exist(page: Path) -> None:
    quoted = [name for name in _QUOTED.findall(page.read_text()) if _FILE.fullmatch(name)]
    assert [name for name in quoted if "NAME" not in name and not _exists(name)] == []


@pytest.mark.parametrize("page", _INTERNALS, ids=_page_name)
def test_stations_of_drawings_are_modules(page: Path) -> None:
    stations = [name for figure in _figures(page.read_text()) for name in _STATION.findall(figure)]
    assert [name for name in stations if not _exists(f"{name}.py")] == []


@pytest.mark.parametrize("page", _OF_CODE, ids=_page_name)
def test_attributes_that_are_named_exist(page: Path) -> None:
    named = {match for name in _QUOTED.findall(page.read_text()) if (match := _ATTRIBUTE.fullmatch(name))}
    lost = [
        match[0]
        for match in named
        if not re.search(rf"^class {match[1]}\b", _code(), re.MULTILINE)
        or not re.search(rf"(?:def |self\.|^    ){match[2]}\b", _code(), re.MULTILINE)
    ]
    assert lost == []


@pytest.mark.parametrize("page", (*_INTERNALS, *_DECISIONS), ids=_page_name)
def test_pages_are_short_and_linked(page: Path) -> None:
    lists = (_DOCS / "internals" / "README.md", _DOCS / "adr" / "README.md")
    if page not in lists:
        assert len(page.read_text().splitlines()) <= _MOST_LINES[page.parent.name]
        assert f"({page.name})" in (page.parent / "README.md").read_text()


def test_the_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 200


def test_the_glossary_has_few_terms_and_each_once() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\*", _GLOSSARY.read_text(), re.MULTILINE)
    assert 0 < len(terms) <= _MOST_TERMS
    assert len({*terms}) == len(terms)


_OLD_WORD = re.compile(r"^\| `(\w+)` \| (`.+`.*) \| .+ \|$", re.MULTILINE)


def _has_word(path: str, word: str) -> bool:
    files = (root / path for root in _ROOTS if (root / path).exists())
    return any(word.lower() in f"{path}\n{file.read_text()}".lower() for file in files)


def test_old_words_that_are_listed_still_stand_in_the_code() -> None:
    rows = _OLD_WORD.findall(_GLOSSARY.read_text())
    assert rows
    places = [(word, path) for word, where in rows for path in _QUOTED.findall(where) if path.endswith(".py")]
    assert [one for one in places if not _has_word(one[1], one[0])] == []
