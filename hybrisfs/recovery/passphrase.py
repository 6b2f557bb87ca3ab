"""Passphrases of recovery kits: words drawn at random, or what a person chose.

The words are those of the "EFF Large Wordlist" by Joseph Bonneau, Electronic Frontier Foundation, 7,776 of
them, so 12.9 bits each: `eff_large_wordlist.txt`, which is what is published at
https://www.eff.org/deeplinks/2016/07/new-wordlists-random-passphrases without the numbers of the dice. Its
licence is Creative Commons Attribution 3.0 United States, https://creativecommons.org/licenses/by/3.0/us/.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import math
import secrets
import unicodedata
from dataclasses import dataclass, field
from typing import Final

from hybrisfs.errors import DamagedError, UsageError

__all__ = ["LEAST_CHARACTERS", "WORDS", "Passphrase", "check_passphrase", "new_passphrase", "normalised"]

WORDS: Final = 8
"""103 bits: nobody tries so many, whatever a try costs."""
LEAST_CHARACTERS: Final = 12
_MOST_BYTES: Final = 1024
_LIST: Final = "eff_large_wordlist.txt"
_LIST_SHA256: Final = "6d557f0693958fb5e650b68b5bee585eb82cf4da32965505c789e924743bc522"


@dataclass(frozen=True, slots=True)
class Passphrase:
    """A passphrase that was drawn, and the logarithm of the number of those it was drawn from."""

    text: str = field(repr=False)
    bits: int


def new_passphrase() -> Passphrase:
    """Draw one from the system's random source. Raises DamagedError for a list of words that was changed."""
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
    data = (importlib.resources.files("hybrisfs.recovery") / _LIST).read_bytes()
    # With a list of few words a passphrase looks as strong as ever.
    if hashlib.sha256(data).hexdigest() != _LIST_SHA256:
        raise DamagedError(
            f"the list of words of passphrases, {_LIST}, has been changed",
            "a passphrase that is drawn from it may be easy to guess",
            "Install HybrisFS again.",
        )
    return data.decode("ascii").split()
