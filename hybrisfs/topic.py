"""What happens in one part of a volume, for other parts that want to know of it at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

__all__ = ["Topic"]

P = ParamSpec("P")


class Topic(Generic[P]):
    """Calls its listeners, in the order in which they began to listen, in the thread of its caller."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, object], ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)

    def listen(self, listener: Callable[P, object]) -> None:
        """Call *listener* from now on."""
        self._listeners = (*self._listeners, listener)

    def ignore(self, listener: Callable[P, object]) -> None:
        """Call *listener* no longer; nothing is done when it did not listen."""
        self._listeners = tuple(one for one in self._listeners if one != listener)
