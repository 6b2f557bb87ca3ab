"""The small process that outlives the daemon: clears the mounts that it left and starts it again.

It is the daemon's parent where no service manager is. All it does is wait, so nothing in it can crash. A
program that uses a dead mount gets "Transport endpoint is not connected": therefore the mounts go first.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from hybrisfs.daemon.only_one import ProcessLock, answers, holder
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DaemonError
from hybrisfs.home import Home
from hybrisfs.polling import readable

__all__ = [
    "Life",
    "Readiness",
    "Revival",
    "begin",
    "clear_mounts",
    "detach",
    "end",
    "note_death",
    "open_folders",
    "supervise",
    "word_to",
]

log = logging.getLogger(__name__)

_STOP: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HEARD: Final = (*_STOP, signal.SIGCHLD)
_PREDECESSOR_ENDS_WITHIN: Final = 20.0  # seconds
_LOOK_EVERY: Final = 0.1  # seconds
_DYING_LOOK_EVERY: Final = 2.0  # seconds
_PACKAGES: Final = Path(__file__).resolve().parents[2]


def supervise(home: Home, ready: Readiness) -> int:
    """Keep a daemon running until it ends in good order or SIGTERM; returns the exit code.

    The caller holds the lock of starts. *ready* learns that the first daemon is ready, or why it is not.
    Raises `DaemonError` when another supervisor does not give way.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    os.chdir("/")
    with ProcessLock(home.supervisor_lock, SYSTEM) as lock:
        _take_over(lock, home.supervisor_lock)
        return _Supervisor(home).run(ready)


def _take_over(lock: ProcessLock, path: Path) -> None:
    """Another supervisor, if there is one, has lost its daemon: its start is left to us."""
    other = holder(path)
    if other is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(other, signal.SIGTERM)
    deadline = time.monotonic() + _PREDECESSOR_ENDS_WITHIN
    if not lock.acquire(lambda: time.monotonic() < deadline):
        raise DaemonError(f"another supervisor, process {holder(path)}, does not end")


class _Supervisor:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._stopping = False
        self._daemon: subprocess.Popen[bytes] | None = None

    def run(self, ready: Readiness) -> int:
        revival = Revival()
        begun = time.monotonic()
        word = self._start()
        if word != READY:
            status = self._await_end()
            ready(word.decode(errors="replace") or f"it ended ({_cause(status)})")
            return 1
        ready("")
        while True:
            status = self._await_end()
            if status == 0:
                return 0
            clear_mounts(self._home)
            if self._stopping or -status in _STOP:
                return 0
            delay = revival.delay_after(time.monotonic() - begun)
            when = f" in {delay:.0f} seconds" if delay else ""
            log.error("the daemon died (%s); it is started again%s", _cause(status), when)
            begun = time.monotonic() + delay
            if not self._revive(delay):
                return 0

    def _revive(self, delay: float) -> bool:
        """Start another daemon; False when that is not our business any more."""
        end = time.monotonic() + delay
        while time.monotonic() < end:
            if self._told_to_stop(min(_LOOK_EVERY, max(0.0, end - time.monotonic()))):
                return False
        with ProcessLock(self._home.start_lock, SYSTEM) as starting:
            if not starting.acquire(lambda: not self._told_to_stop(0.0)):
                return False
            if answers(self._home.socket):
                log.info("another daemon runs")
                return False
            self._start()
        return True

    def _start(self) -> bytes:
        """Start a daemon, and return its word: `READY`, why it cannot run, or nothing when it just died."""
        ours, daemons = os.pipe()
        try:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "hybrisfs.daemon", "--supervised", str(daemons)],
                cwd=_PACKAGES,
                env=self._home.environment(),
                pass_fds=[daemons],
                start_new_session=True,
                preexec_fn=_hear_signals,
            )
        finally:
            os.close(daemons)
        word = b""
        try:
            while True:
                if readable([ours], _LOOK_EVERY):
                    part = os.read(ours, 4096)
                    if not part:
                        return word
                    word += part
                elif self._told_to_stop(0.0):
                    self._daemon.terminate()
        finally:
            os.close(ours)

    def _await_end(self) -> int:
        """The daemon's status when it has ended; signals that come before are passed on to it."""
        daemon = self._daemon
        assert daemon is not None
        if self._stopping:
            daemon.terminate()
        while (status := daemon.poll()) is None:
            received = signal.sigtimedwait(_HEARD, _DYING_LOOK_EVERY)
            if received is None:
                if _is_dying(daemon.pid):
                    _abort_mounts(self._home)
            elif received.si_signo in _STOP:  # after SIGCONT Python may return a signal that is none
                self._stopping = True
                daemon.terminate()
        return status

    def _told_to_stop(self, seconds: float) -> bool:
        """Wait that long for a signal. A signal that came before counts, too."""
        received = signal.sigtimedwait(_HEARD, seconds)
        if received is not None and received.si_signo in _STOP:
            self._stopping = True
        return self._stopping


def _hear_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)


def _is_dying(pid: int) -> bool:
    """Whether a child that has not ended has been killed, and a thread of it cannot end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return False


def _abort_mounts(home: Home) -> None:
    """Fail all that waits for the dead daemon, since its last thread waits for one of those programs."""
    from hybrisfs.daemon.wanted_mounts import WantedMounts
    from hybrisfs.fuse import abort

    for name, mount in WantedMounts(home.state, SYSTEM).all().items():
        try:
            if abort(mount.directory):
                log.warning("%s: the killed daemon could not end before its mount was aborted", name)
        except OSError as error:
            log.error("%s: the daemon was killed and cannot end: %s", name, error)


def clear_mounts(home: Home) -> None:
    """The daemon has died: unmount lazily what it has left where something is to be mounted.

    Failures are logged.
    """
    note_death(home, time.time())
    from hybrisfs.daemon.wanted_mounts import WantedMounts
    from hybrisfs.fuse import clear_stale

    for name, mount in WantedMounts(home.state, SYSTEM).all().items():
        try:
            if clear_stale(mount.directory):
                log.warning("%s: removed the dead mount at %s", name, mount.directory)
        except OSError as error:
            log.error("%s: cannot remove the dead mount: %s", name, error)


def open_folders(home: Home) -> int:
    """Before the program is removed: unlock the folders where something was to be mounted. The exit code."""
    from hybrisfs.daemon.wanted_mounts import WantedMounts, unlock

    failed = 0
    for name, mount in WantedMounts(home.state, SYSTEM).all().items():
        try:
            unlock(mount.directory)
        except OSError as error:
            log.error("%s: %s stays locked: %s", name, mount.directory, error)
            failed = 1
    return failed


def _cause(status: int) -> str:
    return f"status {status}" if status > 0 else signal.Signals(-status).name


# -- leaving the terminal: the process that was started ends when its child, the daemon, is ready -------


READY: Final = b"ready"

Readiness = Callable[[str], None]
"""Called with "" when the daemon is ready, with the reason when it cannot start. Later calls do nothing."""


def detach(log: Path) -> Readiness:
    """Fork. Return in the child only, in a session of its own, its output going to `log`.

    The parent waits for the child's word: exit status 0 when it is ready; otherwise 1, with the child's
    reason, if it gave one, on standard error. Must be called before any thread is started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    ours, childs = os.pipe()
    if os.fork():
        os.close(childs)
        os._exit(_await_word(ours))
    os.close(ours)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)

    return word_to(childs)


def word_to(pipe: int) -> Readiness:
    """Tell who reads from *pipe*, once: `READY`, or the reason."""
    waiting = [pipe]

    def tell(reason: str) -> None:
        while waiting:
            parent = waiting.pop()
            with contextlib.suppress(BrokenPipeError):  # it has lost patience
                os.write(parent, reason.encode(errors="replace") or READY)
            os.close(parent)

    return tell


def _await_word(pipe: int) -> int:
    word = b""
    while part := os.read(pipe, 4096):
        word += part
    if word == READY:
        return 0
    os.write(2, word)
    return 1


# -- what the next daemon knows of this one -------------------------------------------------------------
# RUNTIME/life.json is there from a daemon's start to its end in good order: {"boot": ID OF THE BOOT,
# "started": SECONDS SINCE THE EPOCH, "died": THE SAME OR null, "quick_deaths": NUMBER IN A ROW}. It is not
# synced: after a power cut nothing of it counts.


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Life:
    """One daemon. Times in seconds since the epoch; `died` is None when nobody was there to see it."""

    boot: str
    started: float
    died: float | None
    quick_deaths: int


def begin(home: Home, now: float) -> tuple[Life | None, float]:
    """A daemon starts. The last one, if it died, and how long to wait before trouble is tried again."""
    last = _read(home)
    revival = Revival(last.quick_deaths if last else 0)
    pause = revival.delay_after((last.died or now) - last.started) if last else 0.0
    _write(home, Life(_boot(), now + pause, None, revival.quick_deaths if last else 0))
    return last, pause


def note_death(home: Home, now: float) -> None:
    """The daemon has just died, whatever of."""
    last = _read(home)
    if last is not None and last.died is None:
        _write(home, replace(last, died=now))


def end(home: Home) -> None:
    """The daemon ends in good order."""
    with contextlib.suppress(OSError):
        _path(home).unlink()


def _path(home: Home) -> Path:
    return home.runtime / "life.json"


def _read(home: Home) -> Life | None:
    """None as well when the machine was started since, or the record is damaged."""
    try:
        life = Life(**json.loads(_path(home).read_bytes()))
        # What is not a number makes a TypeError here.
        sound = life.boot == _boot() and life.started + (life.died or 0.0) + life.quick_deaths > 0
    except (OSError, ValueError, TypeError):
        return None
    return life if sound else None


def _write(home: Home, life: Life) -> None:
    try:
        _path(home).write_text(json.dumps(asdict(life)) + "\n")
    except OSError as error:
        log.warning("%s cannot be written: %s", _path(home), error.strerror)


def _boot() -> str:
    return _BOOT.read_text().strip()


# -- when a daemon that died is started again: always, but later and later while it dies quickly --------


_QUICK: Final = 60.0  # seconds; a daemon that lived longer than that had started well
# Seconds, after the first, second ... quick death in a row; the last for all that follow.
_DELAYS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Revival:
    """Counts quick deaths in a row. Knows no clock."""

    def __init__(self, quick_deaths: int = 0) -> None:
        self._quick_deaths = quick_deaths

    @property
    def quick_deaths(self) -> int:
        """How many there have been in a row."""
        return self._quick_deaths

    def delay_after(self, lived: float) -> float:
        """The daemon has died, *lived* seconds after its start: the seconds to wait before the next start."""
        self._quick_deaths = self._quick_deaths + 1 if lived < _QUICK else 1
        return _DELAYS[min(self._quick_deaths, len(_DELAYS)) - 1]
