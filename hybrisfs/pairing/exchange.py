"""Brings what comes by all links to one state machine, and its answers back to the right link."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias
from weakref import WeakSet

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.pairing.errors import PairingError, StrangeMessageError
from hybrisfs.pairing.messages import Peer
from hybrisfs.pairing.protocol import Inviter, Joiner, State

__all__ = ["Deliver", "Dialogue", "Exchange", "Link"]

_GLANCE: Final = 0.2  # seconds between looks at the stop event
_DONE_GRACE: Final = 60.0  # seconds that the joiner has at least to say that it is done


class Dialogue(Struct, frozen=True):
    """How the session speaks with the person: all but `progress` in the thread that called `run_...`."""

    show: Callable[[str], None]
    """Shows the comparison string."""
    confirm: Callable[[Peer], bool]
    """Asks whether the other device, which this is, shows the same string. It may take long, and returns
    False soon after the stop event is set."""
    progress: Callable[[str], None]
    """Tells what is going on; from any thread."""


class Exchange:
    """Brings what the links deliver to a state machine, and its answers back."""

    def __init__(
        self,
        dialogue: Dialogue,
        stop: threading.Event,
        environment: Environment,
        timeout: float,
        nobody: PairingError,
    ) -> None:
        """Lasts *timeout* seconds, then raises *nobody*."""
        self._dialogue = dialogue
        self._stop = stop
        self._environment = environment
        self._deadline = environment.monotonic() + timeout
        self._nobody = nobody
        self._events: queue.SimpleQueue[tuple[Link, bytes | None]] = queue.SimpleQueue()
        self._answers: dict[bytes, bytes | None] = {}  # genuine messages, which may come by several links
        self._told: dict[bytes, WeakSet[Link]] = {}  # the links that were sent these answers
        self._last: tuple[Link, bytes] | None = None  # the last one that was taken, and how it came
        self._chosen: Link | None = None

    def deliver(self, link: Link, _: int, message: bytes | None) -> None:
        """Take what a link has received; from any thread."""
        self._events.put((link, message))

    def drive(self, machine: Inviter | Joiner, until: State) -> Link:
        """Feed the machine until it is in that state; returns the link that did so the first time."""
        while machine.state is not until:
            link, message = self._next()
            self._feed(machine, link, message)
            if self._chosen is None and machine.state is until:
                self._chosen = link
        assert self._chosen is not None
        return self._chosen

    def answer(self, reply: bytes) -> None:
        """Answer the message that was taken last, which waits for it, by whatever link it comes."""
        assert self._last is not None
        link, message = self._last
        self._answers[message] = reply
        self._tell(link, message)

    def progress(self, text: str) -> None:
        """Tell the person what is going on; from any thread."""
        self._dialogue.progress(text)

    def take_waiting(self, machine: Inviter | Joiner) -> None:
        """Feed the machine what has come by now."""
        while True:
            try:
                self._feed(machine, *self._events.get_nowait())
            except queue.Empty:
                return

    def wait_for_done(self, inviter: Inviter) -> bool:
        """Whether the joiner acknowledged its grant in time. Raises PairingError when it declined."""
        self._deadline = max(self._deadline, self._environment.monotonic() + _DONE_GRACE)
        try:
            self.drive(inviter, State.FINISHED)
        except PairingError:
            if inviter.state is State.FAILED:
                raise
            return False
        return True

    def _next(self) -> tuple[Link, bytes | None]:
        while not self._stop.is_set():
            left = self._deadline - self._environment.monotonic()
            if left <= 0:
                raise self._nobody
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=min(left, _GLANCE))
        raise PairingError("the pairing was stopped")

    def _feed(self, machine: Inviter | Joiner, link: Link, message: bytes | None) -> None:
        if message is None:
            if link is self._chosen:
                raise PairingError("the pairing failed", f"the connection by {link.name} was lost")
            return
        try:
            if message not in self._answers:
                self._answers[message] = machine.receive(message, self._environment.time())
                self._last = link, message
        except StrangeMessageError as error:
            self._refuse(link, error)
            return
        except PairingError as error:
            if error.reply is not None:
                link.send(error.reply)
            raise
        # Not the number under which it came: a cloud may show an old message in a new one's place.
        link.accepted(list(self._answers).index(message) + 1)
        self._tell(link, message)

    def _tell(self, link: Link, message: bytes) -> None:
        """Let what has come by this link have its answer, once."""
        told = self._told.setdefault(message, WeakSet())
        answer = self._answers[message]
        if answer is not None and link not in told:
            told.add(link)
            link.send(answer)

    def _refuse(self, link: Link, error: StrangeMessageError) -> None:
        link.refuse(error.reply)
        self._dialogue.progress(f"{link.name}: {error.what}" + (f" ({error.why})" if error.why else ""))


# -- what the session needs of a way to the other device, whichever it is -------------------------------


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
