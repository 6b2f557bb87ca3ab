"""Many keys, or many rows, in one statement: one for each costs more than what it looks up or stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from hybrisfs.state.database import Reader

__all__ = ["insert_many", "select_many", "select_with"]

_SIZES: Final = (8, 64, 512)  # few different statements, so that SQLite has them prepared
_ROWS: Final = (256, 64, 8)


def select_many(database: Reader, query: str, keys: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The rows that *query* finds; its `{}` stands for the rows of a VALUES clause, which *keys* are.

    Some rows of NULLs may be added to them. Results come in no order; other braces cannot be in *query*.
    """
    width = len(keys[0]) if keys else 0
    for start in range(0, len(keys), _SIZES[-1]):
        some = keys[start : start + _SIZES[-1]]
        size = next(size for size in _SIZES if size >= len(some))
        parameters = [*chain.from_iterable(some), *[None] * (width * (size - len(some)))]
        yield from database.execute(_filled(query, size, width), parameters).fetchall()


def select_with(
    database: Reader, columns: str, table: str, column: str, values: Iterable[bytes]
) -> Iterator[tuple[Any, ...]]:
    """*columns* of the rows whose *column* has one of *values*, each of which is given once.

    SQLite sorts what stands behind IN before it looks anything up; a join takes three quarters of that time.
    """
    wanted = "WITH wanted (one) AS (VALUES {})"
    query = f"{wanted} SELECT {columns} FROM wanted CROSS JOIN {table} ON {column} = one"
    return select_many(database, query, [(value,) for value in values])


def insert_many(database: Reader, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Run an INSERT with all *rows*, which its `{}` stands for; they count one after the other."""
    if not rows:
        return
    width = len(rows[0])
    start = 0
    for size in _ROWS:
        filled = _filled(statement, size, width)
        while start + size <= len(rows):
            database.execute(filled, list(chain.from_iterable(rows[start : start + size])))
            start += size
    database.executemany(_filled(statement, 1, width), rows[start:])


@cache
def _filled(statement: str, rows: int, width: int) -> str:
    """The statement with so many rows of parameters in the place of `{}`."""
    return statement.format(", ".join([f"({', '.join('?' * width)})"] * rows))
