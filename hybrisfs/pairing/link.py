"""What the session needs of a way to the other device, whichever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["Deliver", "Link"]


class Link(Protocol):
    """One way to the other device. Sending does not wait for long; its failure is a lost link or not seen."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    def send(self, message: bytes) -> None:
        """Send our next message on this link."""

    def accepted(self, number: int) -> None:
        """The message of this number that came by this link was genuine: the next one is wanted."""

    def refuse(self, reply: bytes | None) -> None:
        """A message that came by this link was not genuine, or a second joiner's: tell it *reply*."""


Deliver: TypeAlias = Callable[[Link, int, bytes | None], None]
"""Takes a message and its number, counted from 1, from any thread. None for a message: the link is lost."""
