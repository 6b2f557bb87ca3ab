"""Pairings under way: what a person is to be shown, and the answer that is waited for.

A pairing runs in a thread of its own while the command that began it waits and is told, over and over, where
it stands; the person's yes or no comes with a command of its own.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from hybrisfs.api.pairing import PairingNews
from hybrisfs.errors import UsageError
from hybrisfs.pairing import Dialogue, Peer

__all__ = ["Pairing", "Pairings"]

log = logging.getLogger(__name__)

_TELL_EVERY: Final = 0.2  # seconds; the channel drops what comes faster than every 0.1 s
_GLANCE: Final = 0.2


_Result = TypeVar("_Result")


class Pairing(Generic[_Result]):
    """One pairing. *work* is given the dialogue and the event that ends it, and returns the result."""

    def __init__(self, news: PairingNews, work: Callable[[Dialogue, threading.Event], _Result]) -> None:
        """*news* is what is told at first."""
        self.id = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._news = replace(news, pairing=self.id)
        self._work = work
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._accepted = False
        self._result: _Result | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="pairing", daemon=True)

    def _run(self) -> None:
        dialogue = Dialogue(show=self._show, confirm=self._confirm, progress=self._tell)
        try:
            self._result = self._work(dialogue, self._stop)
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._failure = error

    def _note(self, **facts: object) -> None:
        with self._lock:  # the clouds' threads tell of their progress meanwhile
            self._news = replace(self._news, **facts)

    def _show(self, comparison: str) -> None:
        self._note(comparison=comparison)

    def _tell(self, text: str) -> None:
        self._note(doing=text)

    def _confirm(self, peer: Peer) -> bool:
        self._note(device=peer.name, question=True)
        while not self._answered.wait(_GLANCE):
            if self._stop.is_set():
                return False
        self._note(question=False)
        return self._accepted

    def answer(self, accept: bool) -> None:
        """What the person says to the comparison string; the first answer counts."""
        if not self._answered.is_set():
            self._accepted = accept
            self._answered.set()

    def carry_through(self, tell: Callable[[PairingNews], None]) -> _Result:
        """Run it, telling where it stands; its result. It ends when nobody listens any more."""
        self._thread.start()
        try:
            while self._thread.is_alive():
                tell(self._news)
                self._thread.join(_TELL_EVERY)
        finally:
            self._stop.set()
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result


class Pairings:
    """The pairings of a daemon, by their ids. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pairings: dict[str, Pairing[Any]] = {}

    def carry_through(self, pairing: Pairing[_Result], tell: Callable[[PairingNews], None]) -> _Result:
        """See `Pairing.carry_through`."""
        with self._lock:
            self._pairings[pairing.id] = pairing
        try:
            return pairing.carry_through(tell)
        finally:
            with self._lock:
                del self._pairings[pairing.id]

    def answer(self, pairing: str, accept: bool) -> None:
        """Pass on a person's answer. Raises UsageError when the pairing is over."""
        with self._lock:
            found = self._pairings.get(pairing)
        if found is None:
            raise UsageError("there is no such pairing any more")
        found.answer(accept)
