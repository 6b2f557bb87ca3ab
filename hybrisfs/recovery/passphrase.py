"""Passphrases of recovery kits: words drawn at random, or what a person chose.

The words are those of the EFF's long list (7,776, so 12.9 bits each), as the package xkcdpass carries it.
"""

from __future__ import annotations

import importlib.resources
import math
import secrets
import unicodedata
from dataclasses import dataclass, field
from typing import Final

from hybrisfs.errors import UsageError

__all__ = ["LEAST_CHARACTERS", "WORDS", "Passphrase", "check_passphrase", "new_passphrase", "normalised"]

WORDS: Final = 8
"""103 bits: nobody tries so many, whatever a try costs."""
LEAST_CHARACTERS: Final = 12
_MOST_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Passphrase:
    """A passphrase that was drawn, and the logarithm of the number of those it was drawn from."""

    text: str = field(repr=False)
    bits: int


def new_passphrase() -> Passphrase:
    """Draw one from the system's random source."""
    words = _word_list()
    return Passphrase(
        " ".join(secrets.choice(words) for _ in range(WORDS)), math.floor(WORDS * math.log2(len(words)))
    )


def normalised(text: str) -> bytes:
    """The bytes that a passphrase stands for: however it is typed, spaces between words count once."""
    return " ".join(unicodedata.normalize("NFKC", text).split()).encode("utf-8", "surrogatepass")


def check_passphrase(text: str) -> str:
    """Return a passphrase that a person chose; raise UsageError when it is too short or too long."""
    plain = normalised(text)
    if len(plain.decode("utf-8", "surrogatepass")) < LEAST_CHARACTERS:
        raise UsageError(
            f"the passphrase has fewer than {LEAST_CHARACTERS} characters",
            "whoever gets hold of a cloud can try passphrases for years",
            "Take a longer one, or let one be made.",
        )
    if len(plain) > _MOST_BYTES:
        raise UsageError(f"the passphrase has more than {_MOST_BYTES} bytes")
    return text


def _word_list() -> list[str]:
    file = importlib.resources.files("xkcdpass") / "static" / "eff-long"
    return file.read_text(encoding="ascii").split()
