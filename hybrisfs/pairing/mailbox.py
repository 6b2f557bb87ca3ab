"""The messages of a pairing as objects on one cloud, for devices that cannot reach each other.

    pair/INVITE/until-SECONDS     made by the inviter: when the invitation ends, in its name (seconds since
                                  the epoch); its content is "HFPO" and u16 = 1, and once the invitation
                                  is over the message closed
    pair/INVITE/joiner-NUMBER     the joiner's messages, NUMBER from 1
    pair/INVITE/inviter-NUMBER    the inviter's

INVITE is `code.invite_id` in hex. Messages are never overwritten, and sealed (`handshake`): what a cloud
alters does not open, what it hides is on other clouds. The inviter deletes all messages at the end and
leaves the closed `until`, so that a latecomer is told; whoever invites next removes what has been over for
a day, the leftovers of a crashed inviter included.
"""

from __future__ import annotations

import re
from collections import defaultdict
from enum import Enum
from typing import Final

from backends.errors import CorruptError, MissingError
from backends.store import Store
from hybrisfs.pairing.code import PairingCode, invite_id
from hybrisfs.pairing.handshake import MAX_MESSAGE
from sync.codec import Writer

__all__ = ["MAX_JOINER_MESSAGE", "MAX_NUMBER", "Mailbox", "Side"]

MAX_JOINER_MESSAGE: Final = 4096  # bytes; what a joiner says is short
MAX_NUMBER: Final = 3  # messages of one side
_MAX_LIES: Final = 16  # different contents of one object that are looked at
_SWEEP_AFTER: Final = 24 * 3600  # seconds after its end, for clocks that are wrong
_OPEN: Final = Writer().format(b"HFPO", 1).getvalue()
_ROOT: Final = "pair/"
_NAME: Final = re.compile(r"pair/([0-9a-f]{32})/(?:until-(\d{1,20})|(?:joiner|inviter)-\d)")


class Side(Enum):
    """Who speaks."""

    INVITER = "inviter"
    JOINER = "joiner"

    @property
    def other(self) -> Side:
        """The one who listens."""
        return Side.JOINER if self is Side.INVITER else Side.INVITER


class Mailbox:
    """One side's place on one cloud. Every method makes requests and raises `backends.errors.StoreError`."""

    def __init__(self, store: Store, code: PairingCode, side: Side) -> None:
        self._store = store
        self._folder = f"{_ROOT}{invite_id(code.secret).hex()}/"
        self._until = f"{self._folder}until-{code.expires}"
        self._side = side
        self._limit = MAX_MESSAGE if side is Side.JOINER else MAX_JOINER_MESSAGE
        self._seen: defaultdict[str, set[bytes]] = defaultdict(set)

    def open(self) -> None:
        """The inviter: say that the invitation is open, and until when."""
        self._store.put_if_absent(self._until, _OPEN)

    def post(self, number: int, message: bytes) -> bytes | None:
        """Store our message. Returns what stands there instead, when that is something else."""
        name = self._name(self._side, number)
        if self._store.put_if_absent(name, message):
            return None
        other = self._store.get(name, limit=MAX_MESSAGE)
        return None if other == message else other

    def look(self, number: int) -> list[bytes]:
        """What the other side may have said as its message of this number, or by closing; each thing once."""
        names = [self._name(self._side.other, number)]
        if self._side is Side.JOINER:
            names.append(self._until)
        found: list[bytes] = []
        for name in names:
            try:
                message = self._store.get(name, limit=self._limit)
            except (MissingError, CorruptError):
                continue
            seen = self._seen[name]
            if message != _OPEN and message not in seen and len(seen) < _MAX_LIES:
                seen.add(message)
                found.append(message)
        return found

    def close(self, notice: bytes) -> None:
        """The inviter: leave the message *notice* for latecomers, and nothing else."""
        self._store.put(self._until, notice)
        sides = (self._side, self._side.other)
        self._store.delete_many([self._name(side, n + 1) for side in sides for n in range(MAX_NUMBER)])

    def withdraw(self) -> None:
        """The joiner: take back what it said, since it goes on by another way."""
        self._store.delete_many([self._name(self._side, number + 1) for number in range(MAX_NUMBER)])

    def sweep(self, now: float) -> None:
        """Delete what is left of invitations that ended a day before *now* (seconds since the epoch)."""
        left: defaultdict[str, list[str]] = defaultdict(list)
        over: set[str] = set()
        for name in self._store.list(_ROOT).names:
            if (match := _NAME.fullmatch(name)) is None:
                continue
            left[match[1]].append(name)
            if match[2] and int(match[2]) + _SWEEP_AFTER < now:
                over.add(match[1])
        for invite in over:
            # The name that tells the end goes last, so that a crash leaves nothing that is never swept.
            self._store.delete_many(sorted(left[invite]))

    def _name(self, side: Side, number: int) -> str:
        return f"{self._folder}{side.value}-{number}"
