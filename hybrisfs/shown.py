"""Names and texts of others in messages: nothing in them makes a line of its own, and no terminal obeys it.

Every member chooses names of files freely, and every server what it answers. So code that puts a name into a
sentence says `shown(name)` there; code that prints a text that has lines says `clean(text)`.
"""

from __future__ import annotations

import os
import shlex

__all__ = ["clean", "quoted", "shown"]


def shown(name: str) -> str:
    """A name within a sentence: as it is, or escaped as shells do it when a terminal could not show it."""
    return name if _plain(name) else _escaped(name)


def quoted(name: str) -> str:
    """A name as a word of a command that can be copied into a shell."""
    return shlex.quote(name) if _plain(name) else _escaped(name)


def clean(text: str) -> str:
    """Text of several lines with everything escaped that a terminal might obey."""
    return "".join(
        character if character.isprintable() or character == "\n" else _escape(character)
        for character in text
    )


def _plain(name: str) -> bool:
    return name.isprintable() and name == name.strip() and name != ""


def _escaped(name: str) -> str:
    body = "".join(
        f"\\{character}"
        if character in "'\\"
        else character
        if character.isprintable()
        else _escape(character)
        for character in name
    )
    return f"$'{body}'"


def _escape(character: str) -> str:
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}
    return known.get(character) or "".join(f"\\x{byte:02x}" for byte in _bytes(character))


def _bytes(character: str) -> bytes:
    try:
        return os.fsencode(character)
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return character.encode("utf-8", "surrogatepass")
