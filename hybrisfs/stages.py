"""The background work of a volume: how its stages wake each other, run and are stopped.

Lock order: the volume's lock, then the one in here. Nobody takes the volume's lock while holding this one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.errors import disk_trouble

__all__ = ["IDLE", "LastError", "Pause", "Signals", "Stage", "Wake", "start_stages"]

log = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 0.02
_REST_SECONDS: Final = 0.1  # that fsync waits at most for the next cut


class Wake(Enum):
    """What a stage is woken for."""

    CHANGES = auto()
    """The view has changed."""
    CHUNKS = auto()
    """There are chunks to pack."""
    DEFERRED = auto()
    """There are chunks to pack for which nothing waits."""
    UPDATES = auto()
    """There are updates to ship."""
    LOOK = auto()
    """Other devices may have put something on the clouds."""
    CONTENT = auto()
    """Content is to be kept here, and is not here yet."""
    SETTINGS = auto()
    """What may move between this device and the clouds was changed."""
    CHECKUP = auto()
    """Somebody wants the clouds looked at."""
    CLOUDS = auto()
    """The set of clouds may be another one."""
    SUSPECTED = auto()
    """Another device has overwritten many files, samples of which are to be looked at."""
    HEAD = auto()
    """Our head is to go out, though it may say nothing new."""


class Pause(NamedTuple):
    """Seconds until a stage is due again: *most* of them, or fewer when it is woken, but *least*."""

    most: float
    least: float = 0.0


IDLE: Final = Pause(1.0)
"""Of stages whose work may come without a word."""
_TOWARDS_CLOUDS: Final = frozenset((Wake.CHANGES, Wake.CHUNKS, Wake.DEFERRED, Wake.UPDATES))


class Signals:
    """Flags under one condition variable."""

    def __init__(self, environment: Environment) -> None:
        self.environment: Final = environment
        self._condition = threading.Condition()
        self._monotonic = environment.monotonic
        self._wait = environment.wait
        self._told = 0  # how often all that wait have looked again
        self._stopping = False
        self._woken = set[Wake]()
        self._paused = False
        self._rest_wanted = False
        self._rest_offered = False
        self.brisk = False  # another device is linked: what changes is wanted at once
        self.awaited = False  # another device is not: it hears of what changes through the clouds alone
        self._last_change = self._monotonic()
        self._flushes = 0
        self._flush_requests = 0

    # -- what happened ---------------------------------------------------------------------------

    def changes_made(self) -> None:
        """The view has changed; the publisher has work."""
        self._last_change = self._monotonic()
        self.wake(Wake.CHANGES)

    def chunks_made(self, *, deferred: bool = False) -> None:
        """An update was signed: the packer and the shipper may have work. *deferred*: the packer of deferred
        chunks, too."""
        self.wake(Wake.CHUNKS, Wake.UPDATES, *([Wake.DEFERRED] if deferred else []))

    def update_made(self) -> None:
        """An update that names no chunk was signed: the shipper may have work."""
        self.wake(Wake.UPDATES)

    def packed(self) -> None:
        """A pack is on the clouds: the shipper may have work, and segments may be evictable."""
        self.wake(Wake.UPDATES)

    def announce(self) -> None:
        """Our head is to be put on all clouds again, and told to linked devices."""
        self.wake(Wake.HEAD, Wake.UPDATES)

    def look_around(self) -> None:
        """What the other devices have put on the clouds should be looked at now."""
        self.wake(Wake.LOOK)

    def content_wanted(self) -> None:
        """There may be content that is to be kept here and is not here yet."""
        self.wake(Wake.CONTENT)

    def suspected(self) -> None:
        """Overwritten files are held, samples of which are to be looked at."""
        self.wake(Wake.SUSPECTED)

    def settings_changed(self) -> None:
        """What may move between this device and the clouds was changed."""
        self.wake(Wake.SETTINGS)

    @property
    def last_change(self) -> float:
        """When the view changed last (monotonic)."""
        return self._last_change

    def progressed(self) -> None:
        """Something that others wait for may have come about."""
        with self._condition:
            self._tell()

    def wake(self, *wakes: Wake) -> None:
        """Wake the stages that wait for this."""
        with self._condition:
            # Each file that a program closes comes here. A notification is heard by all stages: the threads
            # of a dozen of them would take turns with the one that serves the mount.
            if not self._woken.issuperset(wakes):
                self._woken.update(wakes)
                self._tell()

    # -- moments of rest -------------------------------------------------------------------------

    def want_rest(self, wanted: bool) -> None:
        """The publisher wants, or no longer wants, to be woken when programs have synced what they have open.
        The moment that was offered is over."""
        with self._condition:
            self._rest_wanted = wanted
            self._rest_offered = False
            self._tell()

    @property
    def rest_wanted(self) -> bool:
        """See `want_rest`."""
        return self._rest_wanted

    def offer_rest(self) -> None:
        """Programs wait for their fsync and have written nothing since: give the publisher time for a cut,
        if it wants one."""
        with self._condition:
            if self._rest_wanted:
                self._rest_offered = True
                self._tell()
                self._wait(self._condition, lambda: self._stopping or not self._rest_offered, _REST_SECONDS)
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
            self._tell()

    def end_flush(self) -> None:
        with self._condition:
            self._flushes -= 1

    # -- pausing ---------------------------------------------------------------------------------

    @property
    def transfers_paused(self) -> bool:
        """No transfer with the clouds is to begin but those that a person or a program waits for."""
        return self._paused

    def pause_transfers(self, paused: bool) -> None:
        """Let transfers with the clouds pause, or go on."""
        with self._condition:
            if paused != self._paused:
                self._paused = paused
                # What was put off in between is to be looked at.
                self._woken |= {Wake.CHUNKS, Wake.DEFERRED, Wake.UPDATES, Wake.LOOK, Wake.CONTENT}
                self._tell()

    def wait_until_free(self) -> bool:
        """Wait while transfers are paused; False when the stages are to end."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or not self._paused)
            return not self._stopping

    # -- waiting ---------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        with self._condition:
            self._stopping = True
            self._tell()

    def waiting(self, wake: Wake | None = None) -> Callable[[Pause], bool]:
        """What waits for the next step of a stage that is woken for *wake*: see `wait`."""
        return partial(self.wait, wake)

    def wait(self, wake: Wake | None, pause: Pause) -> bool:
        """Wait until it is time for a step: at most *pause.most* seconds, or until woken, but at least
        *pause.least*. A flush cuts short both for a stage that brings something to the clouds, and a moment
        of rest that is wanted for the one that signs changes.

        False when the stages are to end.
        """
        brings = wake in _TOWARDS_CLOUDS
        begun = self._monotonic()

        def may_rest() -> bool:
            return self._rest_offered and wake is Wake.CHANGES

        with self._condition:
            requests = self._flush_requests
            self._wait(
                self._condition,
                lambda: (
                    self._stopping
                    or wake in self._woken
                    or (brings and self._flush_requests != requests)
                    or may_rest()
                ),
                _FLUSH_SECONDS if brings and self._flushes else pause.most,
            )
            self._wait(
                self._condition,
                lambda: self._stopping or (brings and self._flushes > 0) or may_rest(),
                max(0.0, begun + pause.least - self._monotonic()),
            )
            if wake is not None:
                self._woken.discard(wake)
            return not self._stopping

    def take(self, wake: Wake) -> bool:
        """Whether it was woken for this since that was asked, or waited for, last."""
        with self._condition:
            woken = wake in self._woken
            self._woken.discard(wake)
            return woken

    def pause(self, seconds: float) -> bool:
        """Wait that long; False at once when the stages are to end."""
        with self._condition:
            return not self._wait(self._condition, lambda: self._stopping, seconds)

    def wait_to_retry(self, seconds: float) -> bool:
        """Wait that long, or until somebody asks for a flush; False when the stages are to end."""
        with self._condition:
            requests = self._flush_requests
            self._wait(self._condition, lambda: self._stopping or self._flush_requests != requests, seconds)
            return not self._stopping

    def wait_until(self, done: Callable[[], bool], deadline: float | None, step: float = 0.1) -> bool:
        """Poll *done* (called without any lock of ours) until it holds, the deadline, or the stop."""
        while not done():
            left = step if deadline is None else min(step, deadline - self._monotonic())
            if left <= 0 or self._stopping:
                return False
            self._await_word(left)
        return True

    def _await_word(self, seconds: float) -> None:
        with self._condition:
            told = self._told
            self._wait(self._condition, lambda: self._told != told, seconds)

    def _tell(self) -> None:
        """Have all that wait look again. The condition is held."""
        self._told += 1
        self._condition.notify_all()


# -- the one background loop ----------------------------------------------------------------------------
# A stage does what is due, and returns when it is due again. The loop waits, holds the stage while transfers
# are held, and goes on after a failure:
#
#     wait until it is due, or woken  ->  wait while transfers are held  ->  step  ->  wait ...
#
# A step that fails is repeated a second later: all background work is resumable.


_AT_ONCE: Final = Pause(0.0)
_AFTER_FAILURE: Final = 1.0


class Stage(Struct, frozen=True):
    """A piece of background work.

    *step* does what is due and returns the pause before the next step. *wait* waits that long, or until
    there is work; it returns False when the stage is to end. *moves*: no step begins while transfers with
    the clouds are held. *outlives*: it goes on when nothing can be recorded any more, to say so. *finish* is
    called at the end.
    """

    name: str
    step: Callable[[], Pause]
    wait: Callable[[Pause], bool]
    first: Pause = _AT_ONCE
    moves: bool = False
    outlives: bool = False
    finish: Callable[[], None] = lambda: None

    def run(self, signals: Signals, may_go_on: Callable[[Exception], bool]) -> None:
        """Do the steps until the stage is to end. *may_go_on* is asked after a failure."""
        pause = self.first
        while self.wait(pause) and (not self.moves or signals.wait_until_free()):
            try:
                pause = self.step()
            except Exception as error:  # noqa: BLE001 - reported by whom is asked
                if not may_go_on(error) or not signals.pause(_AFTER_FAILURE):
                    break
                pause = _AT_ONCE
        self.finish()


class LastError:
    """The last thing that went wrong in the background, for status."""

    def __init__(self) -> None:
        self.text: str | None = None

    def note(self, text: str, now: float) -> None:
        """Take note of what went wrong *now*, in seconds since the epoch."""
        self.text = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))} {text}"


class _Failures:
    """Reports the failures of one stage."""

    def __init__(
        self, volume: str, stage: str, advice: Callable[[Exception], str], last_error: LastError
    ) -> None:
        self._volume = volume
        self._stage = stage
        self._advice = advice
        self._last_error = last_error
        self._trouble: str | None = None  # of the disk, as it was logged last

    def report(self, error: Exception, now: float) -> None:
        """Log the failure, and keep it for status; trouble that lasts is logged once."""
        trouble = disk_trouble(error)
        where = f"volume {self._volume}: background work {self._stage!r}"
        if trouble is None:
            log.error("%s failed; it is started again", where, exc_info=error)
        elif trouble != self._trouble:
            log.warning("%s waits for the disk: %s", where, trouble)
        self._trouble = trouble
        self._last_error.note(f"{self._stage}: {error}{self._advice(error)}", now)


def start_stages(
    volume: str,
    stages: Iterable[Stage],
    signals: Signals,
    has_failed: Callable[[], bool],
    advice: Callable[[Exception], str],
    last_error: LastError,
) -> dict[str, threading.Thread]:
    """Start a thread for each stage; the threads by the names of the stages. *has_failed*: nothing can be
    recorded any more. *advice* says what to do about an error, after a semicolon, or nothing."""

    def may_go_on(stage: Stage, failures: _Failures, error: Exception) -> bool:
        failures.report(error, signals.environment.time())
        return stage.outlives or not has_failed()

    threads = {
        stage.name: threading.Thread(
            target=stage.run,
            args=(signals, partial(may_go_on, stage, _Failures(volume, stage.name, advice, last_error))),
            name=f"{volume}-{stage.name}",
        )
        for stage in stages
    }
    for thread in threads.values():
        thread.start()
    return threads
