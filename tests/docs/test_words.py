"""Plain words: what the program, its source and its pages say, they say without the words listed here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system.device import REPOSITORY

FORBIDDEN = (
    r"\w*anew",
    r"meanwhile",
    r"on record",
    r"(?:am|is|are|was|were|be|been|being) told",
    r"whoever",
    r"\w*heed\w*",
    r"(?<!there )is no (?:address|code|directory|file|folder|label|list|member|moment|pairing|rate|text)",
)
"""Regular expressions of words that people do not say, or that hide who does what."""

_DOCS = REPOSITORY / "docs"
_PAGES = sorted({*REPOSITORY.glob("*.md"), *_DOCS.rglob("*.md")} - {_DOCS / "formats.md"})
_PRODUCT = ("hybrisfs", "sync", "backends", "cli", "dashboard", "gateway", "serving")
_SOURCES = sorted(
    path
    for folder in _PRODUCT
    for path in (REPOSITORY / folder).rglob("*")
    if path.suffix in (".py", ".js", ".html")
)
_WORDS = re.compile(rf"\b(?:{'|'.join(FORBIDDEN)})\b", re.IGNORECASE)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_BREAK = re.compile(r"\s*\n\s*(?:#|--|\*|//)?\s*")


def forbidden(text: str) -> list[str]:
    """The forbidden words of a text, also those that a line break divides."""
    return _WORDS.findall(_BREAK.sub(" ", text).replace("_", " "))


def _page_name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", _PAGES, ids=_page_name)
def test_pages_have_plain_words(page: Path) -> None:
    assert forbidden(_CODE.sub("", page.read_text())) == []


def test_the_product_has_plain_words() -> None:
    found = {_page_name(path): forbidden(path.read_text()) for path in _SOURCES}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    [
        "it begins Anew",
        "all\n    # meanwhile",
        "on\nrecord",
        "who was\n-- told",
        "Whoever",
        "unheeded",
        "heed_it",
        "x is no folder",
    ],
)
def test_forbidden_words_are_found(text: str) -> None:
    assert forbidden(text)


@pytest.mark.parametrize(
    "text", ["a new one", "one record", "it told us", "who ever did", "needed", "there is no folder"]
)
def test_other_words_are_not(text: str) -> None:
    assert not forbidden(text)
