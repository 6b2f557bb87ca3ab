"""All clouds of a volume as one way to the other device: a thread per cloud looks into its mailbox.

Every message goes to every cloud, and is taken from whichever shows it first. A cloud that hangs keeps
nobody waiting but its own thread, which is abandoned in the end, since Python cannot stop it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backends.errors import AuthError, StoreError
from backends.store import Store
from hybrisfs.pairing.code import PairingCode
from hybrisfs.pairing.exchange import Exchange
from hybrisfs.pairing.mailbox import Mailbox, Side

__all__ = ["CloudsLink", "MailboxLimits"]

log = logging.getLogger(__name__)

_SLOWER: Final = 1.1  # factor from look to look while nothing comes
_SLOWEST: Final = 4.0  # times the first pause


@dataclass(frozen=True, slots=True)
class MailboxLimits:
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
        limits: MailboxLimits,
    ) -> None:
        self._code = code
        self._side = side
        self._exchange = exchange
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
        deadline = time.monotonic() + self._grace
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
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
                        mailbox.sweep(time.time())
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
            self._changed.wait_for(
                lambda: self._closing or len(self._outbox) > posted or self._wanted != wanted, pause
            )

    def _finish(self, mailbox: Mailbox, opened: bool, posted: int) -> None:
        try:
            if self._notice is not None and opened:
                mailbox.close(self._notice)
            elif self._discarding and posted:
                mailbox.withdraw()
        except StoreError as error:
            log.warning("what is left of a pairing stays on a cloud for now: %s", error)
