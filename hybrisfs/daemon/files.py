"""The daemon's commands on files and folders: pins, copies, labels, ignore rules, parcels, versions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from hybrisfs.api import copies, decisions, parcels, versions
from hybrisfs.api import files as files
from hybrisfs.api.files import FilePart, FileReadRequest, FolderListRequest, FolderPage
from hybrisfs.api.ignoring import IgnoreAddRequest, IgnoreListRequest, IgnoreRemoveRequest, IgnoreRules
from hybrisfs.api.request import Handler, Moved, Named, extended
from hybrisfs.daemon.slots import Slots
from hybrisfs.errors import UsageError
from hybrisfs.shown import shown

if TYPE_CHECKING:
    from hybrisfs.volume.files import Labelling, Pinning
    from hybrisfs.volume.volume import Volume as OpenVolume

__all__ = [
    "BrowsingCommands",
    "ContentCommands",
    "CopiesCommands",
    "DecisionCommands",
    "IgnoreCommands",
    "LabelCommands",
    "ParcelCommands",
    "VersionCommands",
    "path_inside",
]


class _Target(NamedTuple):
    """A path as it was given, the volume it is in, and where in that."""

    path: str
    volume: str
    content: Pinning
    relative: PurePath


class ContentCommands:
    """Finds the volume of each path by where the volumes are mounted, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                files.PinRequest.answered_by(self._pin),
                files.PinListRequest.answered_by(self._pin_list),
                files.UnpinRequest.answered_by(self._unpin),
                files.EvictRequest.answered_by(self._evict),
            ]
        )

    def _pin(self, asked: files.PinRequest, tell: Callable[[Moved], None]) -> files.PinnedPaths:
        targets = self._targets(asked.paths)
        paths = [
            extended(files.PinnedPath, one.content.pin(one.relative), path=one.path, volume=one.volume)
            for one in targets
        ]
        if not asked.wait:
            return files.PinnedPaths(paths, all(not one.missing_bytes for one in paths), None)
        done, problem = self._wait(targets, asked.timeout, tell)
        return files.PinnedPaths(paths, done, problem)

    def _wait(
        self, targets: list[_Target], timeout: float | None, tell: Callable[[Moved], None]
    ) -> tuple[bool, str | None]:
        by_volume: dict[str, list[_Target]] = {}
        for target in targets:
            by_volume.setdefault(target.volume, []).append(target)
        for group in by_volume.values():
            content = group[0].content
            if not content.wait(
                [one.relative for one in group],
                timeout,
                lambda done, total: tell(Moved(done, total)),
            ):
                return False, content.trouble
        return True, None

    def _pin_list(self, _: files.PinListRequest) -> files.Pins:
        return files.Pins(
            [
                files.ListedPin(
                    one.files,
                    one.bytes,
                    one.missing_bytes,
                    path=None if root is None else str(root / one.path),
                    volume=slot.name,
                    inside=one.path,
                )
                for slot, root in ((slot, slot.mountpoint()) for slot in self._slots.all())
                for one in slot.open().content.pins()
            ]
        )

    def _unpin(self, asked: files.UnpinRequest) -> files.Paths:
        targets = self._targets(asked.paths)
        for one in targets:
            one.content.unpin(one.relative)
        return files.Paths([files.VolumePath(one.path, one.volume) for one in targets])

    def _evict(self, asked: files.EvictRequest) -> files.EvictedPaths:
        return files.EvictedPaths(
            [
                extended(files.EvictedPath, one.content.evict(one.relative), path=one.path, volume=one.volume)
                for one in self._targets(asked.paths)
            ]
        )

    def _targets(self, paths: Sequence[str]) -> list[_Target]:
        """Where these are, all of which must be in mounted volumes. Raises HybrisError."""
        return [self._target(path) for path in paths]

    def _target(self, path: str) -> _Target:
        slot, relative = self._slots.containing(Path(path))
        return _Target(path, slot.name, slot.open().content, relative)


# -- the daemon's commands that look at the files of a volume without a mount ---------------------------


_MAX_ENTRIES: Final = 500  # of one answer
_MAX_PART: Final = 1 << 20  # bytes of a file in one answer


class BrowsingCommands:
    """Passes on what is asked; answers are bounded."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [FolderListRequest.answered_by(self._list), FileReadRequest.answered_by(self._read)]
        )

    def _list(self, asked: FolderListRequest) -> FolderPage:
        volume, limit = self._slots.get(asked.name).open(), asked.limit or _MAX_ENTRIES
        if not 0 < limit <= _MAX_ENTRIES:
            raise UsageError(f"limit is a number from 1 to {_MAX_ENTRIES}")
        path = path_inside(asked.path)
        entries, more = volume.browsing.folder(path, asked.after or "", limit)
        return FolderPage(volume.name, str(path), entries, more)

    def _read(self, asked: FileReadRequest) -> FilePart:
        volume = self._slots.get(asked.name).open()
        offset, length = asked.offset or 0, asked.length or 0
        if offset < 0 or not 0 < length <= _MAX_PART:
            raise UsageError(f"length is a number of bytes from 1 to {_MAX_PART}, offset is not negative")
        size, data = volume.browsing.read(path_inside(asked.path), offset, length)
        return FilePart(volume.name, size, offset, data)


def path_inside(path: str) -> PurePath:
    """A path relative to the root of a volume; "" and "/" are the root. Raises UsageError for others."""
    relative = PurePath(path.strip("/"))
    if ".." in relative.parts:
        raise UsageError("path must not contain ..")
    return relative


# -- the daemon's commands on parcels -------------------------------------------------------------------


class ParcelCommands:
    """Shares files of mounted volumes with people who have no program."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                parcels.ShareAddRequest.answered_by(self._add),
                parcels.ShareListRequest.answered_by(
                    lambda asked: self._slots.get(asked.name).open().parcels.all()
                ),
                parcels.ShareRevokeRequest.answered_by(self._revoke),
            ]
        )

    def _add(self, asked: parcels.ShareAddRequest, tell: Callable[[Moved], None]) -> parcels.SharedParcel:
        slot, path = self._slots.containing(Path(asked.path))
        made = slot.open().parcels.make(
            path, asked.days, asked.cloud, lambda done, total: tell(Moved(done, total))
        )
        return extended(parcels.SharedParcel, made, volume=slot.name)

    def _revoke(self, asked: parcels.ShareRevokeRequest) -> parcels.RevokedParcel:
        volume = self._slots.get(asked.name).open()
        return extended(parcels.RevokedParcel, volume.parcels.revoke(asked.which), volume=volume.name)


# -- the daemon's commands on copies --------------------------------------------------------------------


class CopiesCommands:
    """Finds the volume of each path by where the volumes are mounted, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                copies.CopiesListRequest.answered_by(self._list),
                copies.CopiesSetRequest.answered_by(self._set),
                copies.CopiesShowRequest.answered_by(self._show),
            ]
        )

    def _list(self, _: copies.CopiesListRequest) -> copies.FoldersCopies:
        return copies.FoldersCopies(
            [
                extended(
                    copies.ListedCopies,
                    one,
                    path=None if root is None else str(root / one.inside),
                    volume=slot.name,
                )
                for slot, root in ((slot, slot.mountpoint()) for slot in self._slots.all())
                for one in slot.open().copies.all()
            ]
        )

    def _set(self, asked: copies.CopiesSetRequest) -> files.Paths:
        targets = [(path, *self._slots.containing(Path(path))) for path in asked.paths]
        for _, slot, relative in targets:
            slot.open().copies.ask(relative, asked.copies)
        return files.Paths([files.VolumePath(path, slot.name) for path, slot, _ in targets])

    def _show(self, asked: copies.CopiesShowRequest) -> copies.FilesCopies:
        targets = [(path, *self._slots.containing(Path(path))) for path in asked.paths]
        return copies.FilesCopies(
            [
                extended(copies.ShownCopies, slot.open().copies.of(relative), path=path, volume=slot.name)
                for path, slot, relative in targets
            ]
        )


# -- the daemon's commands on labels --------------------------------------------------------------------


class LabelCommands:
    """Finds the volume of each path by where the volumes are mounted, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                files.LabelAddRequest.answered_by(self._add),
                files.LabelRemoveRequest.answered_by(self._remove),
                files.LabelShowRequest.answered_by(self._show),
                files.LabelListRequest.answered_by(self._list),
                files.LabelFindRequest.answered_by(self._find),
            ]
        )

    def _add(self, asked: files.LabelAddRequest) -> files.LabelledPaths:
        return self._each(asked.paths, lambda labels, path: labels.add(path, asked.labels))

    def _remove(self, asked: files.LabelRemoveRequest) -> files.LabelledPaths:
        return self._each(asked.paths, lambda labels, path: labels.remove(path, asked.labels))

    def _show(self, asked: files.LabelShowRequest) -> files.LabelledPaths:
        return self._each(asked.paths, lambda labels, path: labels.of(path))

    def _each(
        self, paths: Sequence[str], work: Callable[[Labelling, PurePath], list[str]]
    ) -> files.LabelledPaths:
        """Do the work with each path. Raises HybrisError when a path is in no mounted volume."""
        targets = [(path, *self._slots.containing(Path(path))) for path in paths]
        return files.LabelledPaths(
            [
                files.LabelledPath(path, slot.name, work(slot.open().labels, relative))
                for path, slot, relative in targets
            ]
        )

    def _list(self, _: files.LabelListRequest) -> files.Labels:
        return files.Labels(
            [
                files.LabelCount(label, slot.name, count)
                for slot in self._slots.all()
                for label, count in sorted(slot.open().labels.counts().items())
            ]
        )

    def _find(self, asked: files.LabelFindRequest) -> files.LabelledNodes:
        return files.LabelledNodes(
            asked.label,
            [
                files.LabelledNode(None if root is None else str(root / path), slot.name, str(path))
                for slot, root in ((slot, slot.mountpoint()) for slot in self._slots.all())
                for path in slot.open().labels.find(asked.label)
            ],
        )


# -- the daemon's commands on ignore rules --------------------------------------------------------------


_MOST_IGNORED: Final = 1000  # paths in one answer
_FEW_IGNORED: Final = 20


class IgnoreCommands:
    """Passes on what is asked of the volume with a name, or of the only one."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                IgnoreListRequest.answered_by(self._list),
                IgnoreAddRequest.answered_by(self._add),
                IgnoreRemoveRequest.answered_by(self._remove),
            ]
        )

    def _list(self, asked: IgnoreListRequest) -> IgnoreRules:
        limit = _FEW_IGNORED if asked.limit is None else asked.limit
        if not 0 <= limit <= _MOST_IGNORED:
            raise UsageError(f"limit is a number up to {_MOST_IGNORED}")
        return self._slots.get(asked.name).open().ignoring.list(limit)

    def _add(self, asked: IgnoreAddRequest) -> IgnoreRules:
        ignoring = self._slots.get(asked.name).open().ignoring
        ignoring.add(asked.patterns)
        return ignoring.list(0)

    def _remove(self, asked: IgnoreRemoveRequest) -> IgnoreRules:
        ignoring = self._slots.get(asked.name).open().ignoring
        ignoring.remove(asked.patterns)
        return ignoring.list(0)


# -- the daemon's commands on what files and folders were before ----------------------------------------
# A path is absolute, below where a volume is mounted, or relative to the root of the volume `name` (the only
# one when it is left out). A version's bytes do not travel over the control socket: the client names a file
# that they are written to.


_PIECE: Final = 4 << 20
_MOST_CHANGES: Final = 1000


class VersionCommands:
    """Finds the volume of each path, and passes on what is asked."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                versions.VersionsListRequest.answered_by(self._list),
                versions.LogRequest.answered_by(self._log),
                versions.VersionsRemovedRequest.answered_by(self._removed),
                versions.VersionsMomentsRequest.answered_by(self._moments),
                versions.VersionsFolderRequest.answered_by(self._folder),
                versions.VersionsReadRequest.answered_by(self._read),
                versions.VersionsPreviewRequest.answered_by(self._preview),
                versions.VersionsRestoreRequest.answered_by(self._restore),
                versions.VersionsIdRequest.answered_by(self._id),
                versions.VersionsDiffRequest.answered_by(self._diff),
            ]
        )

    def _located(self, name: str | None, path: str) -> tuple[OpenVolume, str]:
        """The volume, and the path in it."""
        if path.startswith("/"):
            slot, inside = self._slots.containing(Path(os.path.normpath(path)))
            return slot.open(), str(inside)
        return self._slots.get(name).open(), path

    def _list(self, asked: versions.VersionsListRequest) -> versions.Versions:
        volume, path = self._located(asked.name, asked.path)
        return volume.versions.all(path)

    def _log(self, asked: versions.LogRequest) -> versions.Changes:
        volume, path = self._located(asked.name, asked.path)
        limit = _MOST_CHANGES if asked.limit is None else max(1, min(asked.limit, _MOST_CHANGES))
        return volume.versions.log(path, limit)

    def _removed(self, asked: versions.VersionsRemovedRequest) -> versions.RemovedFiles:
        volume, path = self._located(asked.name, asked.path)
        return volume.versions.removed(path)

    def _moments(self, asked: versions.VersionsMomentsRequest) -> versions.Moments:
        return self._slots.get(asked.name).open().versions.moments()

    def _folder(self, asked: versions.VersionsFolderRequest) -> versions.FolderThen:
        volume, path = self._located(asked.name, asked.path)
        if not 0 < asked.limit <= _MAX_ENTRIES:
            raise UsageError(f"limit is a number from 1 to {_MAX_ENTRIES}")
        return volume.versions.folder(path, asked.at, asked.after or "", asked.limit)

    def _read(
        self, asked: versions.VersionsReadRequest, tell: Callable[[Moved], None]
    ) -> versions.VersionRead:
        volume, path = self._located(asked.name, asked.path)
        reader = volume.versions.reader(path, asked.at, asked.version)
        descriptor = os.open(asked.to, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "wb") as file:
            done = 0
            while data := reader.read(done, _PIECE):
                file.write(data)
                done += len(data)
                tell(Moved(done, reader.size))
        return versions.VersionRead(volume.name, reader.size)

    def _preview(self, asked: versions.VersionsPreviewRequest) -> versions.Preview:
        volume, path, target = self._with_target(asked)
        return volume.versions.preview(path, asked.at, target, _MOST_CHANGES)

    def _restore(self, asked: versions.VersionsRestoreRequest) -> versions.Restored:
        volume, path, target = self._with_target(asked)
        return volume.versions.restore(path, asked.at, asked.version, target)

    def _id(self, asked: versions.VersionsIdRequest, tell: Callable[[Moved], None]) -> versions.Identified:
        volume, path = self._located(asked.name, asked.path)
        return versions.Identified(volume.content_ids.of((path, asked.at), lambda read: tell(Moved(read, 0))))

    def _diff(
        self, asked: versions.VersionsDiffRequest, tell: Callable[[versions.SomeDiffering], None]
    ) -> versions.Compared:
        volume, first = self._located(asked.name, asked.first)
        other, second = self._located(asked.name, asked.second)
        if other is not volume:
            raise UsageError("both must be in one volume")
        found = volume.content_ids.compare(
            (first, None), (second, None), lambda _: tell(versions.SomeDiffering([]))
        )
        for start in range(0, len(found.differences), _MOST_CHANGES):
            some = found.differences[start : start + _MOST_CHANGES]
            tell(
                versions.SomeDiffering([versions.Differing(one.what, os.fsdecode(one.path)) for one in some])
            )
        return versions.Compared(found.first, found.second)

    def _with_target(
        self, asked: versions.VersionsPreviewRequest | versions.VersionsRestoreRequest
    ) -> tuple[OpenVolume, str, str | None]:
        """The volume, and the path and the target in it."""
        volume, path = self._located(asked.name, asked.path)
        target: str | None = None
        if asked.target is not None:
            other, target = self._located(asked.name, asked.target)
            if other is not volume:
                raise UsageError("a version is restored in its own volume only", "", "Copy it there instead.")
        return volume, path, target


# -- the daemon's commands about what waits for a person: conflicts, and deletions in mass --------------


_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DecisionCommands:
    """Passes on what is asked, and what a person has decided."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.commands: dict[str, Handler] = dict(
            [
                decisions.ConflictsListRequest.answered_by(self._conflicts),
                decisions.ConflictsKeepRequest.answered_by(
                    lambda asked: self._settle(asked.name, asked.path, keep_all=False)
                ),
                decisions.ConflictsKeepAllRequest.answered_by(
                    lambda asked: self._settle(asked.name, asked.path, keep_all=True)
                ),
                decisions.ConflictsCompareRequest.answered_by(self._compare),
                decisions.ConflictsSettleRequest.answered_by(self._settle_merged),
                decisions.DeletionsListRequest.answered_by(self._deletions),
                decisions.DeletionsShowRequest.answered_by(
                    lambda asked: self._slots.get(asked.name).open().held_files(asked.id)
                ),
                decisions.DeletionsAcceptRequest.answered_by(
                    lambda asked: self._decide(asked.name, asked.id, undo=False)
                ),
                decisions.DeletionsUndoRequest.answered_by(
                    lambda asked: self._decide(asked.name, asked.id, undo=True)
                ),
            ]
        )

    def _conflicts(self, asked: decisions.ConflictsListRequest) -> decisions.Conflicts:
        volume = self._slots.get(asked.name).open()
        found, first, limit = volume.conflicts(), asked.first or 0, asked.limit
        if first < 0 or (limit is not None and limit < 0):
            raise UsageError("first and limit must not be negative")
        shown = found[first:] if limit is None else found[first : first + limit]
        keys = [decisions.KeyConflict(*key, values) for key, values in volume.key_values.conflicts()]
        moved = [decisions.MovedContainer(*one) for one in volume.key_values.moved()]
        return decisions.Conflicts(volume.name, shown, len(found), keys, moved)

    def _settle(self, name: str | None, path: str, *, keep_all: bool) -> Named:
        volume = self._slots.get(name).open()
        volume.settle_conflict(path, keep_all=keep_all)
        return Named(volume.name)

    def _compare(self, asked: decisions.ConflictsCompareRequest) -> decisions.ComparedVersions:
        volume = self._slots.get(asked.name).open()
        found = volume.merging.compare(asked.path)
        files = {str(number): content for number, content in enumerate(found.contents)}
        files |= {} if found.base is None else {"base": found.base}
        files |= {} if found.merge.content is None else {"merged": found.merge.content}
        for name, content in files.items():
            descriptor = os.open(Path(asked.into) / name, _NEW_FILE, 0o600)
            with open(descriptor, "wb") as file:
                file.write(content)
        return decisions.ComparedVersions(
            name=volume.name,
            path=found.path,
            versions=list(found.places),
            base=found.base is not None,
            merged=found.merge.content is not None,
            why=found.merge.why,
            mark=found.mark,
        )

    def _settle_merged(self, asked: decisions.ConflictsSettleRequest) -> Named:
        volume = self._slots.get(asked.name).open()
        descriptor = os.open(asked.source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{shown(asked.source)} is not a regular file")
            content = file.read(decisions.LARGEST_COMPARED + 1)
        if len(content) > decisions.LARGEST_COMPARED:
            raise UsageError(
                "the merged file is too large", f"it has more than {decisions.LARGEST_COMPARED >> 20} MiB"
            )
        volume.merging.settle(asked.path, asked.mark, content)
        return Named(volume.name)

    def _deletions(self, asked: decisions.DeletionsListRequest) -> decisions.Deletions:
        volume = self._slots.get(asked.name).open()
        return decisions.Deletions(volume.name, volume.deletions())

    def _decide(self, name: str | None, which: str, *, undo: bool) -> Named:
        volume = self._slots.get(name).open()
        volume.decide_deletion(which, undo=undo)
        return Named(volume.name)
