"""The thread of one mirror: waits for changes on either side, compares, and carries out what follows."""

from __future__ import annotations

import errno
import logging
import os
import threading
from typing import Any, Final, Protocol

from msgspec import Struct, field

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.environment import Environment
from hybrisfs.mirror.agreed import AgreedTable
from hybrisfs.mirror.engine import Mirror, Outcome
from hybrisfs.mirror.folder import Folder
from hybrisfs.mirror.ignore import AwayError, Ignored, open_marked
from hybrisfs.mirror.model import ChangedError, Side, parent_of
from hybrisfs.mirror.plan import Action, Agree, Brake, Rename, plan, recognise, removals
from hybrisfs.mirror.volume_side import VolumeSide
from hybrisfs.mirror.watch import Rest, WatchedCare, Watcher

__all__ = ["MirrorLimits", "Surroundings", "Worker"]

log = logging.getLogger(__name__)

_BATCH: Final = 500  # steps between two commits
_SHOWN_PROBLEMS: Final = 20
_RENAME_ROUNDS: Final = 50
_JOIN_SECONDS: Final = 20.0


class MirrorLimits(Struct, frozen=True):
    """How long a mirror waits, in seconds."""

    quiet: float = 1.0
    """Without a change, after which a file counts as finished."""
    gather: float = 0.2
    """Between the first change and the look at it: changes come in crowds."""
    again: float = 0.5
    """Until something that was not at rest is looked at again."""
    longest: float = 30.0
    """The same for something that keeps changing."""
    away: float = 2.0
    """Between two looks whether the folder is back."""
    broken: float = 10.0
    """Until a full or read-only disk is tried again."""
    problems: float = 60.0
    """Until what could not be done is tried again."""
    unwatched: float = 30.0
    """Between two looks at everything while not all changes are noticed."""
    everything: float = 1800.0
    """Between two looks at everything otherwise."""


class _StoppedError(Exception):
    """The thread is to end."""


class Surroundings(Protocol):
    """What a mirror needs of the volume that it belongs to."""

    def side(self, root: bytes, ignored: Ignored) -> VolumeSide: ...
    @property
    def namer(self) -> ChunkNamer: ...
    def device_name(self) -> str: ...
    def hindrance(self) -> str | None:
        """Why the volume must not be compared with anything just now."""

    def commit(self) -> None:
        """Make durable what was done in the volume. Raises OSError."""

    def deletion_share(self) -> float: ...


class _State(Struct):
    """The state as people see it."""

    state: str = "starting"
    reason: str | None = None
    done: int = 0
    total: int = 0
    names: int = 0
    problems: dict[bytes, str] = field(default_factory=dict)
    held_back: dict[Side, int] = field(default_factory=dict)
    equal_at: float | None = None


class Worker:
    """Runs from `start` to `stop`. `noticed` may be called from any thread, whatever it holds; so may the
    rest, but without locks."""

    def __init__(self, table: AgreedTable, around: Surroundings, environment: Environment) -> None:
        self.settings = table.settings
        self._table = table
        self._around = around
        self._environment = environment
        self._monotonic = environment.monotonic
        self._limits = limits = environment.limits.of(MirrorLimits)
        self._ignored = Ignored(table.settings.ignore)
        self._volume = around.side(table.settings.root, self._ignored)
        self._brake = Brake(around.deletion_share())
        self._rest = Rest(limits.quiet)
        self._watcher: Watcher | None = None
        self._folder: tuple[int, int] | None = None  # device and inode number when it was last open
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._noticed: set[int] = set()
        self._again: set[bytes] = set()
        self._everything_at = 0.0
        self._patience = limits.again
        self._verdict: bool | None = None
        self._held_back: dict[Side, set[bytes]] = {}
        self._shown = _State()
        self._thread = threading.Thread(target=self._run, name=f"mirror {table.settings.directory.name}")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the step that it is at."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def noticed(self, number: int) -> None:
        """The node of that number has changed in the volume."""
        self._noticed.add(number)
        self._wake.set()

    def decide(self, *, accept: bool) -> None:
        """Let a mass deletion happen, or have what was deleted put back."""
        self._verdict = accept
        self._everything_at = 0.0
        self._wake.set()

    def facts(self) -> dict[str, Any]:
        """What `hybrisfs mirror status` shows."""
        shown, settings, watcher = self._shown, self.settings, self._watcher
        problems = sorted(shown.problems.items())
        return {
            "id": settings.id,
            "directory": str(settings.directory),
            "at": settings.at,
            "ignore": list(settings.ignore),
            "state": shown.state,
            "reason": shown.reason,
            "names": shown.names,
            "done": shown.done,
            "total": shown.total,
            "equal_at": shown.equal_at,
            "held_back": {side.value: count for side, count in shown.held_back.items()},
            "problems": [{"path": os.fsdecode(path), "why": why} for path, why in problems[:_SHOWN_PROBLEMS]],
            "problem_count": len(problems),
            "watching": watcher.trouble if watcher is not None else None,
        }

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        try:
            while True:
                self._wait(pause)
                pause = self._round()
        except _StoppedError:
            pass
        finally:
            if self._watcher is not None:
                self._watcher.stop()
            self._table.close()

    def _wait(self, seconds: float) -> None:
        if self._wake.wait(seconds):
            self._stopping.wait(self._limits.gather)
        self._tick()
        self._wake.clear()

    def _tick(self) -> None:
        if self._stopping.is_set():
            raise _StoppedError

    def _round(self) -> float:
        """Compare once; the seconds after which to do so again if nothing is heard."""
        try:
            hindrance = self._around.hindrance()
            if hindrance is not None:
                raise AwayError(hindrance)
            root = open_marked(self.settings.directory, self.settings.id)
            try:
                return self._compare(root)
            finally:
                os.close(root)
        except (AwayError, ChangedError) as error:
            self._pause(str(error))
            return self._limits.away
        except OSError as error:
            self._pause(_explained(error))
            return self._limits.broken
        except _StoppedError:
            raise
        except Exception as error:
            log.exception("the mirror of %s failed; it starts over", self.settings.directory)
            self._pause(f"unexpected: {error}")
            return self._limits.broken

    def _pause(self, reason: str) -> None:
        if self._shown.reason != reason:
            log.warning("the mirror of %s is paused: %s", self.settings.directory, reason)
        self._table.undo()
        self._rest.forget()
        self._everything_at = 0.0
        self._wake.clear()
        self._shown.state, self._shown.reason = "paused", reason

    def _compare(self, root: int) -> float:
        self._follow(root)
        self._trust()
        now = self._monotonic()
        assert self._watcher is not None
        numbers, self._noticed = self._noticed, set()
        dirty, missed = self._watcher.take()
        verdict, self._verdict = self._verdict, None
        deep = missed or verdict is not None or now >= self._everything_at
        directories = {b""} if deep else dirty | self._again | self._volume.paths_of(numbers)
        if verdict is False:
            self._table.forget({path for paths in self._held_back.values() for path in paths})
        if deep:
            self._held_back.clear()
            self._rest.forget()
            self._shown.problems.clear()
        if verdict is True:
            self._brake.release()
        if directories:
            self._again = set()
            try:
                self._equalise(self._mirror(root), directories, deep, accepted=verdict is True)
            except BaseException:
                self._everything_at = 0.0
                raise
        if deep:
            limits = self._limits
            self._everything_at = now + (limits.unwatched if self._watcher.trouble else limits.everything)
        return self._next()

    def _next(self) -> float:
        """How long to wait, and the state to show until then."""
        shown = self._shown
        if self._again:
            pause, self._patience = self._patience, min(self._patience * 1.5, self._limits.longest)
            shown.state, shown.reason = "working", None
            return pause
        self._patience = self._limits.again
        shown.state, shown.reason, shown.equal_at = "watching", None, self._environment.time()
        if shown.held_back:
            shown.state = "waiting"
        left = max(0.0, self._everything_at - self._monotonic())
        if shown.problems:
            self._again = {parent_of(path) for path in shown.problems}
            return min(left, self._limits.problems)
        return left

    def _follow(self, root: int) -> None:
        """Watch the folder; start over when it is another folder than before."""
        status = os.fstat(root)
        if self._folder == (status.st_dev, status.st_ino) and self._shown.state != "paused":
            return
        if self._watcher is not None:
            self._watcher.stop()
        self._watcher = Watcher(os.fsencode(self.settings.directory), self._wake)
        self._folder = status.st_dev, status.st_ino
        self._everything_at = 0.0
        self._shown.state, self._shown.reason = "working", None

    def _trust(self) -> None:
        """See that the volume is the one that the record is about, and not an older state of it."""
        if not self._volume.is_there():
            raise AwayError(
                f"the folder {self.settings.at} of the volume was deleted; "
                "remove the mirror, or add it again to put everything back"
            )
        generation = self._volume.generation(self.settings.id)
        if generation < self._table.generation:
            log.warning(
                "the volume is older than what the mirror of %s knows of it: both are merged again",
                self.settings.directory,
            )
            self._table.forget_all()
            self._commit(None)

    def _mirror(self, root: int) -> Mirror:
        return Mirror(self._local(root), self._volume, self._table)

    def _local(self, root: int) -> Folder:
        assert self._watcher is not None
        care = WatchedCare(self._watcher, self._rest, self._around.device_name(), self._environment)
        return Folder(root, self._ignored, self._around.namer, care, self._environment)

    def _equalise(self, mirror: Mirror, directories: set[bytes], deep: bool, *, accepted: bool) -> None:
        """Look at these directories, and make both sides of them equal. *accepted*: much may be removed."""
        for _ in range(_RENAME_ROUNDS):
            trees, again = mirror.look(directories, deep=deep, tick=self._tick)
            renames = recognise(trees)
            if not renames or not self._carry_out(mirror, renames):
                break
            directories |= {parent_of(one.new if isinstance(one, Rename) else one.path) for one in renames}
        self._again |= again
        for path in [one for one in self._shown.problems if parent_of(one) in directories]:
            del self._shown.problems[path]
        self._shown.problems |= {path: why for path, why in trees.held.items() if why}
        steps = plan(trees)
        self._carry_out(mirror, steps if accepted else self._braked(steps))
        self._shown.held_back = {side: len(paths) for side, paths in self._held_back.items()}
        self._shown.names = self._table.count()

    def _braked(self, steps: list[Action]) -> list[Action]:
        """The steps, but for removals when there are so many that a person should say yes first."""
        names, now = self._table.count(), self._monotonic()
        wanted = removals(steps)
        if wanted[Side.VOLUME]:  # removing the whole folder does not remove what the volume holds
            os.close(open_marked(self.settings.directory, self.settings.id))
        for side, paths in wanted.items():
            waiting = self._held_back.get(side, set()) | set(paths)
            self._brake.share = self._around.deletion_share()
            if self._brake.holds(side, len(waiting), names, now):
                self._held_back[side] = waiting
            else:
                self._held_back.pop(side, None)
                self._brake.note(side, len(paths), now)
        kept = {path for paths in self._held_back.values() for path in paths}
        return [step for step in steps if step.path not in kept]

    def _carry_out(self, mirror: Mirror, steps: list[Any]) -> int:
        """Do the steps, batch by batch; how many were done."""
        shown = self._shown
        shown.done, shown.total = 0, len(steps)
        if any(not isinstance(step, Agree) for step in steps):
            shown.state = "working"

        def tick() -> None:
            shown.done += 1
            self._tick()

        done = 0
        for start in range(0, len(steps), _BATCH):
            outcome = Outcome()
            try:
                mirror.carry_out(steps[start : start + _BATCH], tick, outcome)
            finally:
                if outcome.done:
                    self._commit(mirror)
                self._again |= outcome.again
                shown.problems |= outcome.problems
                done += outcome.done
        shown.done = shown.total = 0
        return done

    def _commit(self, mirror: Mirror | None) -> None:
        """Make what was done durable on both sides, then the record of it."""
        if mirror is not None:
            mirror.sync_local()
        generation = max(self._table.generation, self._volume.generation(self.settings.id)) + 1
        self._volume.note_generation(self.settings.id, generation)
        self._around.commit()
        self._table.commit(generation)


def _explained(error: OSError) -> str:
    what = {
        errno.ENOSPC: "a disk is full, or the volume's cache",
        errno.EDQUOT: "the quota of a disk is used up",
        errno.EROFS: "the disk is read-only",
    }.get(error.errno or 0)
    return f"{what or error.strerror or error}; it goes on when that has passed"
