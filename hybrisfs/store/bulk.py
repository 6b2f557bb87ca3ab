"""Queries about many keys at once: a statement per key costs more than what it looks up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from hybrisfs.store.database import Database

__all__ = ["select_many"]

_AT_ONCE: Final = 400


def select_many(database: Database, query: str, keys: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The rows that *query* finds; its `{}` stands for the rows of a VALUES clause, which *keys* are.

    Other braces cannot be in it. Rows of different keys come in no order.
    """
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        row = f"({', '.join('?' * len(some[0]))})"
        values = ", ".join([row] * len(some))
        yield from database.execute(query.format(values), tuple(chain.from_iterable(some))).fetchall()
