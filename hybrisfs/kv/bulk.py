"""Statements about many rows at once.

The interpreter is given to another thread at each step of a statement, and a statement per row costs one such
change, and the way back, for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

__all__ = ["execute_many"]

_SIZES: Final = (256, 64, 16, 4, 1)  # few different statements, so that SQLite has them prepared


def execute_many(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Execute *statement* for all rows; its `{}` stands for the rows of a VALUES clause."""
    start = 0
    while start < len(rows):
        left = len(rows) - start
        some = rows[start : start + next(size for size in _SIZES if size <= left)]
        connection.execute(_filled(statement, len(some), len(some[0])), [*chain.from_iterable(some)])
        start += len(some)


@cache
def _filled(statement: str, rows: int, columns: int) -> str:
    return statement.format(", ".join([f"({', '.join('?' * columns)})"] * rows))
