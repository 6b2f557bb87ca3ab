"""Plain words: what the program, its source and its pages say, they say without the words listed here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


# -- a device is called a machine where people read of it -----------------------------------------------

_CALLED_DEVICE = re.compile(
    r"(?<!hybrisfs )(?<![./_-])\b[Dd]evices?\b(?![_=/|.-]\w)"
    r"(?! (?:list|role|invite|join|keep|remove|rename|proof|check-proof)\b)"
)
_OTHERWISE = (
    re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRIMARY KEY)\b|, clock, |\bclock >="),  # SQL
    re.compile(r"^hybrisfs[. ]\S* ?2026-11 "),  # a purpose of keys, part of a format
    re.compile(r"is a device, a socket or a pipe"),
    re.compile(r"device, log, clouds|\(device\)|--metadata device|device\|log"),  # a place of keys
    re.compile(r"a device key seed|^device tag$|^device recovery "),
)
"""Strings with the word that mean something else, or that nobody reads."""


def _sentences(source: str) -> Iterator[str]:
    """The string constants of a source but for its docstrings, without what is put into them."""
    tree = ast.parse(source)
    unread = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unread:
            yield node.value


def called_device(source: str) -> list[str]:
    """What a program says of a device, calling it so."""
    return [
        text
        for text in _sentences(source)
        if " " in text.strip()
        and _CALLED_DEVICE.search(text)
        and not any(one.search(text) for one in _OTHERWISE)
    ]


def test_messages_speak_of_machines() -> None:
    found = {
        _page_name(path): called_device(path.read_text())
        for path in _SOURCES
        if path.suffix == ".py" and "api" not in path.parts and "state" not in path.parts
    }
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_a_message_about_a_device_is_found() -> None:
    assert called_device('x = f"{n} changes wait on this device: {why}"') == [
        " changes wait on this device: "
    ]
    assert called_device('"""On this device."""\nx = "see hybrisfs device list"\ny = "device list"') == []
