"""What a fuzz target is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sync.errors import DecodeError

__all__ = ["Target", "decoder", "text"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder with all that has to hold of it."""

    take: Callable[[bytes], object]
    """Decode, and assert what there is to assert of the result."""
    seeds: Sequence[bytes]
    """Valid records."""
    errors: tuple[type[Exception], ...] = (DecodeError,)
    """What `take` may raise for invalid ones."""
    nonsense: Sequence[bytes] = ()
    """Further beginnings, which are not valid."""

    def accepts(self, data: bytes) -> bool:
        """Whether it is a valid record. Raises what must not be raised."""
        try:
            self.take(data)
        except self.errors:
            return False
        return True


def decoder(
    decode: Callable[[bytes], T],
    seeds: Sequence[bytes],
    encode: Callable[[T], bytes] | None = None,
    errors: tuple[type[Exception], ...] = (DecodeError,),
    nonsense: Sequence[bytes] = (),
) -> Target:
    """A target; with *encode*, of records that have one form."""

    def take(data: bytes) -> object:
        value = decode(data)
        if encode is not None:
            assert encode(value) == data, "a record of another form than the one that is written"
        return value

    return Target(take, seeds, errors, nonsense)


def text(
    parse: Callable[[str], T],
    seeds: Sequence[str],
    errors: tuple[type[Exception], ...],
    again: Callable[[T], str] | None = None,
    nonsense: Sequence[str] = (),
) -> Target:
    """A target for text; with *again*, what is written of the result means the same."""

    def take(data: bytes) -> object:
        value = parse(data.decode("utf-8", "surrogateescape"))
        if again is not None:
            assert parse(again(value)) == value
        return value

    return Target(take, [one.encode() for one in seeds], errors, [one.encode() for one in nonsense])
