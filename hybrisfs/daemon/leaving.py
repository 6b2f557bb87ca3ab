"""The daemon's commands that leave, delete and rename volumes.

A volume is left in these steps, which the same command goes on with after a crash:

1. Everything is brought to the clouds; else nothing has happened, unless that is forced.
2. The volume is unmounted, and what was written in the meantime is brought there, too.
3. The device signs that it leaves (`hybrisfs.sharing.membership.Membership.leave`), and the clouds get that.
   A device that has signed it, and still has the volume, is one that was removed: it reads, and writes for
   nobody.
4. Its copy is deleted (`hybrisfs.admit.local_copy`).

The last device of a volume has nobody to tell: it is not taken out of the volume, which it could come back to
by a recovery kit only, as another device.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hybrisfs.api.request import Handler, Moved
from hybrisfs.api.status import VolumeStatus
from hybrisfs.api.volumes import (
    DeletedVolume,
    LeftVolume,
    RenamedVolume,
    VolumeDeleteRequest,
    VolumeLeaveRequest,
    VolumeRenameRequest,
)
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home, check_volume_name
from hybrisfs.shown import shown

if TYPE_CHECKING:
    from hybrisfs.daemon.local import LocalVolumes
    from hybrisfs.volume.volume import Volume as OpenVolume

__all__ = ["LeavingCommands"]

log = logging.getLogger(__name__)

_TELL_SECONDS: Final = 60.0  # in which the clouds take the word that this device leaves
_FORCED_SECONDS: Final = 10.0  # the same when it goes all the same
_SYNC_SECONDS: Final = 60.0  # in which everything is brought to the clouds when it goes all the same
_FIT: Final = ("ok", "slow", "lying")  # the states of clouds that take something


class _Lost(Struct, frozen=True):
    """What is on this device only."""

    files: int = 0
    bytes: int = 0
    containers: Sequence[str] = ()

    def __str__(self) -> str:
        parts = []
        if self.files or self.bytes:
            files = "1 file or folder" if self.files == 1 else f"{self.files:,} files or folders"
            parts.append(f"{files} with {self.bytes:,} bytes")
        if self.containers:
            parts.append(f"the keys of {', '.join(map(shown, self.containers))}")
        return " and ".join(parts)


class LeavingCommands:
    """*creating* is held while a volume gets a name."""

    def __init__(self, home: Home, kind: LocalVolumes, slots: Slots, creating: threading.Lock) -> None:
        self._home = home
        self._kind = kind
        self._slots = slots
        self._creating = creating
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self.commands: dict[str, Handler] = dict(
            [
                VolumeLeaveRequest.answered_by(self._leave),
                VolumeDeleteRequest.answered_by(self._delete),
                VolumeRenameRequest.answered_by(self._rename),
            ]
        )

    @contextmanager
    def _alone_with(self, name: str | None) -> Iterator[Slot]:
        """The volume, which no other such command takes at the same time."""
        slot = self._slots.get(name)
        with self._lock:
            if slot.name in self._busy:
                raise UsageError(f"{slot.name} is being left, deleted or renamed already")
            self._busy.add(slot.name)
        try:
            yield slot
        finally:
            with self._lock:
                self._busy.discard(slot.name)

    def _forget(self, slot: Slot) -> None:
        slot.forget()
        self._slots.drop(slot.name)

    # -- leaving ---------------------------------------------------------------------------------

    def _leave(self, asked: VolumeLeaveRequest, tell: Callable[[Moved], None]) -> LeftVolume:
        with self._alone_with(asked.name) as slot:
            if self._kind.is_going(self._home, slot.name):
                self._forget(slot)
                return _left(slot.name, [], _Lost())
            try:
                volume = slot.open()
            except (HybrisError, OSError) as error:
                why = str(error).splitlines()[0]
                if not asked.force:
                    raise HybrisError(
                        f"{slot.name} is not left: it cannot be opened",
                        why,
                        "With --force it is deleted here; what no cloud has is lost then, and the other "
                        "machines have to remove this one.",
                    ) from error
                self._forget(slot)
                return _left(slot.name, [], _Lost(), told=False, trouble=why)
            return self._leave_open(slot, volume, asked, tell)

    def _leave_open(
        self, slot: Slot, volume: OpenVolume, asked: VolumeLeaveRequest, tell: Callable[[Moved], None]
    ) -> LeftVolume:
        _others(volume, asked)
        self._bring(slot, volume, asked, tell)
        slot.release(lazy=asked.force)
        lost = self._bring(slot, volume, asked, tell)
        others = _others(volume, asked)  # some may have left at the same time
        told, trouble = True, ""
        if others and (volume.has_left or not volume.status(look=False).removed):
            told, trouble = _tell_others(volume, _FORCED_SECONDS if asked.force else _TELL_SECONDS)
        if not told and not asked.force:
            raise HybrisError(
                f"{slot.name} is not left to the end: the clouds do not know yet that this machine goes",
                trouble,
                "Try again when they can be reached; with --force it goes at once, and you remove it on "
                "another machine: hybrisfs device remove.",
            )
        self._forget(slot)
        return _left(slot.name, others, lost, told=told, trouble=trouble)

    def _bring(
        self, slot: Slot, volume: OpenVolume, asked: VolumeLeaveRequest, tell: Callable[[Moved], None]
    ) -> _Lost:
        """Bring everything to the clouds: what cannot be brought there. Raises HybrisError when that is to
        be kept."""
        done, why = self._sync(volume, asked, tell)
        containers = _containers_here(volume, forced=asked.force)
        now = volume.status(look=False)
        ignored = now.ignored
        if done and not (containers or ignored.files):
            return _Lost()
        lost = _Lost(
            now.pending_files + now.machines_only.files + ignored.files,
            now.pending_bytes + now.machines_only.bytes + ignored.bytes,
            containers,
        )
        if asked.force:
            log.warning("%s is left by force, and lost is: %s", slot.name, str(lost) or "nothing")
            return lost
        if not (lost.files or lost.bytes or containers):
            raise HybrisError(
                f"{slot.name} is not left: the clouds do not answer",
                why,
                "With --force it is left all the same; then remove this machine on another one: hybrisfs "
                "device remove.",
            )
        brings = f"hybrisfs sync {slot.name} --wait brings changes to the clouds."
        ways = [] if done else ["Copy what you need elsewhere." if now.removed else brings]
        if ignored.files:
            ways += ["Copy what you need of what hybrisfs ignore list shows."]
        ways += ["hybrisfs kv migrate moves containers to the clouds."] if containers else []
        raise HybrisError(
            f"{slot.name} is not left, as {lost} would be lost",
            why or ("ignore rules keep that on this machine" if ignored.files else "no cloud has that"),
            " ".join([*ways, "With --force it is left all the same."]),
        )

    def _sync(
        self, volume: OpenVolume, asked: VolumeLeaveRequest, tell: Callable[[Moved], None]
    ) -> tuple[bool, str]:
        """Whether everything is on the clouds, and why not."""
        status = volume.status()
        if status.removed:
            nothing = not (status.pending_files or status.pending_bytes)
            return nothing, "" if nothing else "this machine was removed, and no other takes its changes"
        away = _too_few(status)
        if away:
            return False, away
        try:
            timeout = _SYNC_SECONDS if asked.force and asked.timeout is None else asked.timeout
            done = volume.sync(timeout, lambda done, total: tell(Moved(done, total)))
        except HybrisError as error:
            return False, error.what
        return done, "" if done else "the time was over before all of it was on the clouds"

    # -- deleting --------------------------------------------------------------------------------

    def _delete(self, asked: VolumeDeleteRequest, tell: Callable[[Moved], None]) -> DeletedVolume:
        with self._alone_with(asked.name) as slot:
            if asked.confirm != slot.name:
                raise UsageError(
                    f"{asked.confirm[:80]!r} is not the name of the volume", "nothing was deleted"
                )
            if self._kind.is_going(self._home, slot.name):
                raise HybrisError(
                    f"{slot.name} is being left",
                    "its keys are gone",
                    f"Run hybrisfs volume leave {slot.name}.",
                )
            self._require_right(slot)
            slot.close_for_good()
            clouds = list(self._kind.empty_clouds(self._home, slot.name, lambda done: tell(Moved(done, 0))))
            forgotten = asked.force or not any(one.trouble for one in clouds)
            if forgotten:
                self._forget(slot)
            log.info("deleted %d objects of %s", sum(one.objects for one in clouds), slot.name)
            return DeletedVolume(slot.name, clouds, forgotten)

    def _require_right(self, slot: Slot) -> None:
        """Raises HybrisError when the volume is others' to delete. One that cannot be opened is this
        person's, who has no other way."""
        try:
            volume = slot.open()
        except (HybrisError, OSError) as error:
            log.info("%s is deleted without being opened: %s", slot.name, error)
            return
        if volume.status(look=False).removed:
            raise HybrisError(
                f"{slot.name} is not deleted: this machine belongs to it no longer",
                "",
                f"hybrisfs volume leave {slot.name} deletes what is here.",
            )
        volume.require_writer()

    # -- renaming --------------------------------------------------------------------------------

    def _rename(self, asked: VolumeRenameRequest) -> RenamedVolume:
        new = check_volume_name(asked.new_name)
        with self._creating, self._alone_with(asked.name) as slot:
            if any(one.name == new for one in self._slots.configs()):
                raise UsageError(f"there is a volume {new!r} already", "", "Choose another name.")
            place = self._slots.rename(slot, new)
            return RenamedVolume(new, None if place is None else str(place))


def _others(volume: OpenVolume, asked: VolumeLeaveRequest) -> list[str]:
    """The names of the other machines. Raises UsageError when there is none, and that is not agreed to."""
    others = [one.name for one in volume.devices() if not one.this]
    if not others and not asked.last:
        raise UsageError(
            f"{volume.name} is not left: this is its last machine",
            "nobody could then read the clouds without a recovery kit",
            "With --last it is left all the same; hybrisfs volume delete empties the clouds.",
        )
    return others


def _left(name: str, others: list[str], lost: _Lost, *, told: bool = True, trouble: str = "") -> LeftVolume:
    return LeftVolume(name, others, told, trouble, lost.files, lost.bytes, list(lost.containers))


def _tell_others(volume: OpenVolume, seconds: float) -> tuple[bool, str]:
    """Whether the clouds have the word that this device leaves, and why not."""
    try:
        told = volume.leave(seconds)
    except (HybrisError, OSError) as error:
        return False, str(error).splitlines()[0]
    return told, "" if told else _too_few(volume.status()) or "they have not taken it in time"


def _too_few(status: VolumeStatus) -> str:
    """Why the clouds take nothing now; "" when enough do."""
    away = [f"{shown(one.name)} ({one.state})" for one in status.clouds if one.state not in _FIT]
    need = status.f + status.k
    if len(status.clouds) - len(away) >= need:
        return ""
    return f"{need} clouds are needed, and some do not answer: {', '.join(away)}"


def _containers_here(volume: OpenVolume, *, forced: bool) -> list[str]:
    """The containers whose lists of keys are on this device only. Raises HybrisError when nobody knows, and
    it is not left by force."""
    try:
        return volume.key_values.only_here()
    except HybrisError as error:
        if not forced:
            raise HybrisError(
                f"{volume.name} is not left: it is not known which keys are on this machine only",
                error.what,
                f"{error.advice} With --force it is left all the same.".strip(),
            ) from error
        log.warning("it is not known which containers are on this machine only: %s", error)
        return []
