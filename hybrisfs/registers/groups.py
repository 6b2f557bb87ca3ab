"""Dividing what is to be done into parts of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["in_groups"]

T = TypeVar("T")


def in_groups(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items, in order, in groups of *most* in size together; a larger item is a group of its own."""
    group: list[T] = []
    size = 0
    for item in items:
        one = size_of(item)
        if group and size + one > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += one
    if group:
        yield group
