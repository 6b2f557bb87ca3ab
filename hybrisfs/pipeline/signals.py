"""How the background threads of a volume wake each other, and how they are stopped.

Lock order: the volume's lock, then the one in here. Nobody takes the volume's lock while holding this one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Signals"]

_IDLE_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 0.02
_REST_SECONDS: Final = 0.1  # that fsync waits at most for the cut that is to be taken meanwhile


class Signals:
    """Flags under one condition variable."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._stopping = False
        self._changed = False
        self._chunks = False
        self._shippable = False
        self._look = False
        self._wanted = False
        self._settings = False
        self._held = False
        self._rest_wanted = False
        self._rest_offered = False
        self.brisk = False  # another device is linked: what changes is wanted at once
        self.awaited = False  # another device is not: it hears of what changes through the clouds alone
        self._last_change = time.monotonic()
        self._flushes = 0
        self._flush_requests = 0

    # -- what happened ---------------------------------------------------------------------------

    def changes_made(self) -> None:
        """The view has changed; the publisher has work."""
        self._last_change = time.monotonic()
        self._set("_changed")

    def chunks_made(self) -> None:
        """An update was signed: the packer and the shipper may have work."""
        self._set("_chunks")
        self._set("_shippable")

    def packed(self) -> None:
        """A pack is on the clouds: the shipper may have work, and segments may be evictable."""
        self._set("_shippable")

    def look_around(self) -> None:
        """What the other devices have put on the clouds should be looked at now."""
        self._set("_look")

    def content_wanted(self) -> None:
        """There may be content that is to be kept here and is not here yet."""
        self._set("_wanted")

    def settings_changed(self) -> None:
        """What may move between this device and the clouds was changed."""
        self._set("_settings")

    @property
    def last_change(self) -> float:
        """When the view changed last (monotonic)."""
        return self._last_change

    def progressed(self) -> None:
        """Something that others wait for may have come about."""
        with self._condition:
            self._condition.notify_all()

    def _set(self, flag: str) -> None:
        with self._condition:
            setattr(self, flag, True)
            self._condition.notify_all()

    # -- moments of rest -------------------------------------------------------------------------

    def want_rest(self, wanted: bool) -> None:
        """The publisher wants, or no longer wants, to be woken when programs have synced what they have open.
        The moment that was offered is over."""
        with self._condition:
            self._rest_wanted = wanted
            self._rest_offered = False
            self._condition.notify_all()

    def offer_rest(self) -> None:
        """Programs wait for their fsync and have written nothing since: give the publisher time for a cut,
        if it wants one."""
        with self._condition:
            if self._rest_wanted:
                self._rest_offered = True
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._stopping or not self._rest_offered, _REST_SECONDS)
                self._rest_offered = False

    # -- flushing --------------------------------------------------------------------------------

    @property
    def flushing(self) -> bool:
        """Somebody waits until everything is on the clouds: nothing is held back or waited for."""
        return self._flushes > 0

    def begin_flush(self) -> None:
        with self._condition:
            self._flushes += 1
            self._flush_requests += 1
            self._condition.notify_all()

    def end_flush(self) -> None:
        with self._condition:
            self._flushes -= 1

    # -- holding ---------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """No transfer with the clouds is to begin but those that a person or a program waits for."""
        return self._held

    def hold(self, held: bool) -> None:
        """Hold transfers with the clouds, or let them go on."""
        with self._condition:
            if held != self._held:
                self._held = held
                # What was put off while they were held is to be looked at.
                self._chunks = self._shippable = self._look = self._wanted = True
                self._condition.notify_all()

    def wait_until_free(self) -> bool:
        """Wait while transfers are held; False when the threads are to stop."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or not self._held)
            return not self._stopping

    # -- waiting ---------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def wait_for_changes(self, until: float) -> bool:
        """Wait for changes, or a moment, and then until the time *until* (monotonic), a flush, or a moment of
        rest that is wanted.

        False when the threads are to stop.
        """
        self._wait("_changed")
        with self._condition:
            self._condition.wait_for(
                lambda: self._stopping or self._flushes > 0 or self._rest_offered,
                max(0.0, until - time.monotonic()),
            )
            self._changed = False
            return not self._stopping

    def wait_for_chunks(self) -> bool:
        """Wait for chunks to be packed, or a moment; False when the threads are to stop."""
        return self._wait("_chunks", clear=True)

    def wait_for_updates(self) -> bool:
        """Wait for updates to be shipped, or a moment; False when the threads are to stop."""
        return self._wait("_shippable", clear=True)

    def wait_to_look(self, seconds: float) -> bool:
        """Wait that long, or until somebody asks to look around; False when the threads are to stop."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or self._look, seconds)
            self._look = False
            return not self._stopping

    def wait_for_wanted(self, seconds: float) -> bool:
        """Wait that long, or until content may be wanted; False when the threads are to stop."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or self._wanted, seconds)
            self._wanted = False
            return not self._stopping

    def take_wanted(self) -> bool:
        """Whether content may be wanted since this was asked, or waited for, last."""
        with self._condition:
            wanted, self._wanted = self._wanted, False
            return wanted

    def wait_for_settings(self, seconds: float) -> bool:
        """Wait that long, or until the settings are changed; False when the threads are to stop."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or self._settings, seconds)
            self._settings = False
            return not self._stopping

    def _wait(self, flag: str, *, clear: bool = False) -> bool:
        with self._condition:
            seconds = _FLUSH_SECONDS if self._flushes else _IDLE_SECONDS
            requests = self._flush_requests
            self._condition.wait_for(
                lambda: (
                    self._stopping
                    or getattr(self, flag)
                    or self._flush_requests != requests
                    or (self._rest_offered and flag == "_changed")
                ),
                seconds,
            )
            if clear:
                setattr(self, flag, False)
            return not self._stopping

    def pause(self, seconds: float) -> bool:
        """Wait that long; False at once when the threads are to stop."""
        with self._condition:
            return not self._condition.wait_for(lambda: self._stopping, seconds)

    def wait_to_retry(self, seconds: float) -> bool:
        """Wait that long, or until somebody asks for a flush; False when the threads are to stop."""
        with self._condition:
            requests = self._flush_requests
            self._condition.wait_for(lambda: self._stopping or self._flush_requests != requests, seconds)
            return not self._stopping

    def wait_until(self, done: Callable[[], bool], deadline: float | None, step: float = 0.1) -> bool:
        """Poll *done* (called without any lock of ours) until it holds, the deadline, or the stop."""
        while not done():
            left = step if deadline is None else min(step, deadline - time.monotonic())
            if left <= 0 or self._stopping:
                return False
            with self._condition:
                self._condition.wait(left)
        return True
