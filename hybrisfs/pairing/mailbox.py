"""The messages of a pairing as objects on one cloud, for devices that cannot reach each other.

    pair/INVITE/until-SECONDS     made by the inviter: when the invitation ends, in its name (seconds since
                                  the epoch); its content is "HFPO" and u16 = 1, and once the invitation
                                  is over the message closed
    pair/INVITE/joiner-NUMBER     the joiner's messages, NUMBER from 1
    pair/INVITE/inviter-NUMBER    the inviter's

INVITE is `code.invite_id` in hex. Messages are never overwritten, and sealed (`handshake`): what a cloud
alters does not open, what it hides is on other clouds. The inviter deletes all messages at the end and
leaves the closed `until`, so that a latecomer finds it; the next inviter removes what has been over for
a day, the leftovers of a crashed inviter included.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from backends.errors import AuthError, CorruptError, MissingError, StoreError
from backends.store import Store
from hybrisfs.environment import Environment
from hybrisfs.pairing.code import PairingCode, invite_id
from hybrisfs.pairing.exchange import Exchange
from hybrisfs.pairing.handshake import MAX_MESSAGE
from sync.codec import Writer

__all__ = ["MAX_JOINER_MESSAGE", "MAX_NUMBER", "CloudsLink", "Mailbox", "MailboxLimits", "Side"]

log = logging.getLogger(__name__)

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


# -- all clouds of a volume as one way to the other device ----------------------------------------------
# Every message goes to every cloud, and is taken from whichever shows it first. A cloud that hangs keeps
# nobody waiting but its own thread, which is abandoned in the end, since Python cannot stop it.


_SLOWER: Final = 1.1  # factor from look to look while nothing comes
_SLOWEST: Final = 4.0  # times the first pause


class MailboxLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    pause: float = 1.0
    """Seconds between two looks at a cloud at first; somewhat more while nothing comes."""
    grace: float = 5.0
    """Seconds that the clouds have for the last requests."""


class CloudsLink:
    """A `Link` through the mailboxes on *stores*, from `start` to `close`."""

    name: Final = "the clouds"

    def __init__(
        self,
        stores: Sequence[Store],
        code: PairingCode,
        side: Side,
        exchange: Exchange,
        environment: Environment,
    ) -> None:
        self._code = code
        self._side = side
        self._exchange = exchange
        self._environment = environment
        limits = environment.limits.of(MailboxLimits)
        self._pause, self._grace = limits.pause, limits.grace
        self._changed = threading.Condition()
        self._outbox: list[bytes] = []
        self._wanted = 1
        self._closing = False
        self._discarding = False
        self._notice: bytes | None = None
        self._threads = [
            threading.Thread(target=self._serve, args=(store,), name=f"pairing {store.url}", daemon=True)
            for store in stores
        ]

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    def send(self, message: bytes) -> None:
        with self._changed:
            self._outbox.append(message)
            self._changed.notify_all()

    def accepted(self, number: int) -> None:
        with self._changed:
            self._wanted = max(self._wanted, number + 1)
            self._changed.notify_all()

    def refuse(self, reply: bytes | None) -> None:
        """The mailbox shows a thing only once; other clouds may show the genuine message. A second joiner
        has no place of its own for a reply: it reads that the invitation is closed."""

    def discard(self) -> None:
        """The joiner, when it goes on by another way: take back what was said; does not wait for it."""
        self._discarding = True
        self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self, notice: bytes | None = None) -> None:
        """Send what is to be sent, end, and wait. The inviter leaves *notice* and removes the rest."""
        self._notice = notice
        self._stop()
        deadline = self._environment.monotonic() + self._grace
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - self._environment.monotonic()))
                if thread.is_alive():
                    log.warning("abandoned a request that does not return: %s", thread.name)

    def _serve(self, store: Store) -> None:
        """The thread of one cloud."""
        mailbox = Mailbox(store, self._code, self._side)
        told = ""
        pause = self._pause
        opened, posted = self._side is Side.JOINER, 0
        while True:
            closing = self._closing
            try:
                if not opened:
                    mailbox.open()
                    opened = True
                    with contextlib.suppress(AuthError):  # who may not delete leaves that to others
                        mailbox.sweep(self._environment.time())
                if not self._discarding:
                    posted = self._post(mailbox, posted)
                if closing:
                    break
                if self._look(mailbox):
                    pause = self._pause
            except StoreError as error:
                if closing:
                    break
                if told != error.reason:
                    told = error.reason
                    self._exchange.progress(f"the cloud {store.url} does not help: {error.reason}")
            pause = min(pause * _SLOWER, self._pause * _SLOWEST)
            self._wait(pause, posted)
        self._finish(mailbox, opened, posted)

    def _post(self, mailbox: Mailbox, posted: int) -> int:
        """Send what was not sent to this cloud; returns how many messages it has now."""
        with self._changed:
            waiting = self._outbox[posted:]
        for message in waiting:
            other = mailbox.post(posted + 1, message)
            posted += 1
            if other is not None:
                self._exchange.deliver(self, posted, other)
        return posted

    def _look(self, mailbox: Mailbox) -> bool:
        with self._changed:
            wanted = self._wanted
        found = mailbox.look(wanted)
        for message in found:
            self._exchange.deliver(self, wanted, message)
        return bool(found)

    def _wait(self, pause: float, posted: int) -> None:
        with self._changed:
            wanted = self._wanted
            self._environment.wait(
                self._changed,
                lambda: self._closing or len(self._outbox) > posted or self._wanted != wanted,
                pause,
            )

    def _finish(self, mailbox: Mailbox, opened: bool, posted: int) -> None:
        try:
            if self._notice is not None and opened:
                mailbox.close(self._notice)
            elif self._discarding and posted:
                mailbox.withdraw()
        except StoreError as error:
            log.warning("what is left of a pairing stays on a cloud for now: %s", error)
