"""Telling what to do about a damaged database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hybrisfs.errors import DamagedError
from sync import DecodeError

__all__ = ["NONSENSE", "is_damage", "naming_damage", "rebuild_advice"]

NONSENSE: Final = (sqlite3.DatabaseError, ArithmeticError, LookupError, TypeError, ValueError)
"""What becomes of rows whose bytes were altered."""


def rebuild_advice(volume: str) -> str:
    """What a person can do about a damaged database of the volume with this name."""
    return f"hybrisfs volume rebuild {volume} makes a new one from what the clouds have."


def is_damage(error: BaseException) -> bool:
    """Whether the error means that pages of the database are not what was written, not that it cannot be used
    just now."""
    return type(error) is sqlite3.DatabaseError


@contextmanager
def naming_damage(volume: str, database: Path) -> Iterator[None]:
    """Errors that come of a damaged database are raised as DamagedError, which says what to do about it."""
    try:
        yield
    except DamagedError as error:
        raise DamagedError(error.what, error.why, error.advice or rebuild_advice(volume)) from error
    except (*NONSENSE, DecodeError) as error:
        raise DamagedError(
            f"the database {database} is damaged", str(error), rebuild_advice(volume)
        ) from error
