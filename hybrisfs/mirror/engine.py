"""Looks at the two sides and carries out what is to be done. It knows a side by its protocol only (`Place`),
so that tests can put any filesystem there, and has no thread, clock or socket.

Every step on a side is atomic, and raises ChangedError instead of doing anything when it does not find what
the plan was made for.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from msgspec import Struct, field

from hybrisfs.mirror.agreed import AgreedTable
from hybrisfs.mirror.model import Agreed, ChangedError, Glimpse, Kind, Seen, Side, Trees, join, parent_of
from hybrisfs.mirror.plan import Action, Agree, Copy, Forget, Remove, Rename, SetAside, SetAttributes

__all__ = ["Held", "Listing", "LocalPlace", "Mirror", "Original", "Outcome", "Place"]

log = logging.getLogger(__name__)


class Held(Struct, frozen=True):
    """Something that is left alone for now; *why*, if a person should know. *later*: look again soon."""

    why: str | None = None
    later: bool = False


Listing = dict[bytes, Glimpse | Held]


class Original(Protocol):
    """Something that is being read, to be put on the other side."""

    @property
    def seen(self) -> Seen:
        """What it was when reading began; complete once all blocks were read."""

    @property
    def own_bits(self) -> int:
        """The bits of its mode that are not mirrored; what is new in the volume begins with them."""

    @property
    def xattrs(self) -> Mapping[bytes, bytes]: ...
    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Offset and bytes of what a file holds besides zeros. Raises ChangedError when it changes
        during the read."""


class Place(Protocol):
    """One side. Paths are relative to the mirror. Methods raise ChangedError, OSError."""

    def names(self, path: bytes) -> Listing | None:
        """All that is in a directory; None when there is no such directory."""

    def examine(self, path: bytes, glimpse: Glimpse, *, content: bool) -> Seen:
        """Look closer; into the content of a file only if *content* says so."""

    def read(self, path: bytes, seen: Seen) -> AbstractContextManager[Original]: ...
    def write(self, path: bytes, original: Original, replaces: Seen | None) -> Seen:
        """Make what is read; of a directory without what is in it."""

    def link(self, path: bytes, existing: bytes, seen: Seen, replaces: Seen | None) -> Seen:
        """A further name for *existing*."""

    def set_attributes(self, path: bytes, original: Original, target: Seen) -> Seen: ...
    def remove(self, path: bytes, target: Seen) -> None: ...
    def rename(self, old: bytes, new: bytes, target: Seen) -> None: ...


class LocalOriginal(Original, Protocol):
    """Something on the disk that is being read."""

    def part(self, offset: int, length: int) -> bytes:
        """Some bytes of a file. Raises ChangedError, OSError."""


class VolumePlace(Place, Protocol):
    """The folder in the volume."""

    def examine(
        self, path: bytes, glimpse: Glimpse, *, content: bool, beside: LocalOriginal | None = None
    ) -> Seen:
        """As on the other side. *beside*: the file of that path there, which may have the same bytes; then
        these need not be fetched."""


class LocalPlace(Place, Protocol):
    """The folder on the disk."""

    def read(self, path: bytes, seen: Seen) -> AbstractContextManager[LocalOriginal]: ...
    def set_aside(self, path: bytes, target: Seen) -> bytes:
        """Rename to a conflict name; the path that it has then."""

    def sync(self) -> None:
        """Make durable what was done."""


class Outcome(Struct):
    """The outcome of some steps: directories to be looked at again, and failures by path."""

    again: set[bytes] = field(default_factory=set)
    problems: dict[bytes, str] = field(default_factory=dict)
    done: int = 0


_LOOKS: Final = 3
_FATAL: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTCONN, errno.ESTALE)
)  # nothing else would do better


class Mirror:
    """Two sides, and their agreed state."""

    def __init__(self, local: LocalPlace, volume: VolumePlace, agreed: AgreedTable) -> None:
        self._places: dict[Side, Place] = {Side.LOCAL: local, Side.VOLUME: volume}
        self._local = local
        self._volume = volume
        self.agreed = agreed

    # -- looking ---------------------------------------------------------------------------------

    def look(
        self, directories: Iterable[bytes], *, deep: bool, tick: Callable[[], None]
    ) -> tuple[Trees, set[bytes]]:
        """All that is in these directories, and in those below them that are new or gone on a side; *deep*:
        in all below them. With it the directories that are to be looked at again soon. *tick* is called now
        and then, and may raise to stop.

        Names that a program moved during the look are looked at again at once, and left alone when that goes
        on."""
        wanted = set(directories)
        for _ in range(_LOOKS):
            trees, again, moved = self._look_once(wanted, deep, tick)
            if not moved:
                break
            wanted |= moved | set(map(parent_of, moved))
        trees.held.update(dict.fromkeys(moved))
        return trees, again | set(map(parent_of, moved))

    def _look_once(
        self, directories: Iterable[bytes], deep: bool, tick: Callable[[], None]
    ) -> tuple[Trees, set[bytes], set[bytes]]:
        """See `look`; last the names that were moved during the look."""
        trees, again = Trees(), set[bytes]()
        listed: dict[Side, dict[bytes, bool]] = {side: {} for side in Side}
        waiting = list(directories)
        known = set(waiting)
        while waiting:
            directory = waiting.pop()
            tick()
            listings = self._list(directory, trees)
            if listings is None:
                continue
            for side, listing in listings.items():
                listed[side][directory] = listing is not None
            names = self._look_into(directory, listings, trees, again)
            found = {path for path in names if self._leads_on(path, trees, deep)}
            if directory and any(listing is None for listing in listings.values()):
                found.add(parent_of(directory))  # it is gone on a side: that is decided where its name is
            waiting += found - known
            known |= found
        moved = {one for side in Side for one in _moved_since(trees.on(side), listed[side])}
        return trees, again, moved

    def _list(self, directory: bytes, trees: Trees) -> dict[Side, Listing | None] | None:
        """What is in a directory on each side; None, and it is held, when that is unknown."""
        try:
            listings = {side: place.names(directory) for side, place in self._places.items()}
            if not directory and None in listings.values():
                raise ChangedError("the folder itself went away")
            return listings
        except OSError as error:
            if error.errno in _FATAL or not directory:
                raise
            trees.held[directory] = error.strerror
            return None

    def _look_into(
        self, directory: bytes, listings: dict[Side, Listing | None], trees: Trees, again: set[bytes]
    ) -> set[bytes]:
        """Look at all that is or was in one directory; the paths of that."""
        agreed = self.agreed.children(directory)
        trees.agreed.update(agreed)
        paths = set(agreed)
        for side, listing in listings.items():
            other = listings[side.other] or {}
            for name, one in (listing or {}).items():
                path = join(directory, name)
                paths.add(path)
                if isinstance(one, Held):
                    trees.held[path] = one.why or trees.held.get(path)
                    again |= {directory} if one.later else set()
                    continue
                try:
                    trees.on(side)[path] = self._seen(
                        side,
                        path,
                        one,
                        agreed.get(path),
                        trees,
                        content=name in other and path not in trees.held,
                    )
                except ChangedError:
                    trees.held[path] = None
                    again.add(directory)
                except OSError as error:
                    if error.errno in _FATAL:
                        raise
                    trees.held[path] = error.strerror
        return paths

    def _seen(
        self, side: Side, path: bytes, one: Glimpse, agreed: Agreed | None, trees: Trees, *, content: bool
    ) -> Seen:
        before = agreed.on(side) if agreed is not None else None
        if before is not None and (before.identity, before.stamp) == (one.identity, one.stamp):
            return before
        content = content or before is not None
        beside = trees.local.get(path)
        if side is Side.LOCAL or not content or beside is None or beside.facts.kind is not Kind.FILE:
            return self._places[side].examine(path, one, content=content)
        with self._local.read(path, beside) as file:
            return self._volume.examine(path, one, content=content, beside=file)

    @staticmethod
    def _leads_on(path: bytes, trees: Trees, deep: bool) -> bool:
        """Whether it is a directory that has to be looked into as well."""
        local, volume, agreed = trees.local.get(path), trees.volume.get(path), trees.agreed.get(path)
        folders = [one for one in (local, volume) if one and one.facts.kind is Kind.DIRECTORY]
        was = agreed is not None and agreed.local.facts.kind is Kind.DIRECTORY
        if path in trees.held or not (folders or was):
            return False
        is_known = (
            agreed is not None
            and len(folders) == 2
            and folders[0].identity == agreed.local.identity
            and folders[1].identity == agreed.volume.identity
        )
        return deep or not is_known

    # -- doing -----------------------------------------------------------------------------------

    def carry_out(self, steps: Iterable[Action | Rename], tick: Callable[[], None], outcome: Outcome) -> None:
        """Do the steps one after the other, and note their outcome; one that cannot be done is left out.
        Raises OSError when a side cannot be used at all just now (full, read-only, gone). *tick* is called
        after each, and may raise."""
        for step in steps:
            try:
                self._do(step, outcome)
                outcome.done += 1
            except ChangedError as error:
                log.debug("left for later: %s", error)
                outcome.again.add(parent_of(step.new if isinstance(step, Rename) else step.path))
            except OSError as error:
                if error.errno in _FATAL:
                    raise
                path = step.new if isinstance(step, Rename) else step.path
                outcome.problems[path] = error.strerror or str(error)
            tick()

    def sync_local(self) -> None:
        """Make durable what was done in the folder on the disk."""
        self._local.sync()

    def _do(self, step: Action | Rename, outcome: Outcome) -> None:
        if isinstance(step, Agree):
            self.agreed.put(step.path, Agreed(step.local, step.volume))
        elif isinstance(step, Forget):
            self.agreed.forget([step.path])
        elif isinstance(step, Copy):
            self._copy(step)
        elif isinstance(step, SetAttributes):
            with self._places[step.to.other].read(step.path, step.source) as original:
                new = self._places[step.to].set_attributes(step.path, original, step.target)
            self._agree(step.to, step.path, new, step.source)
        elif isinstance(step, Remove):
            self._places[step.to].remove(step.path, step.target)
            self.agreed.forget([step.path])
        elif isinstance(step, Rename):
            self._places[step.to].rename(step.old, step.new, step.target)
            self.agreed.rename(step.known_as, step.new)
            # Events of these folders, and work left for later in them, still have their former paths.
            outcome.again.update(self.agreed.folders(step.new))
        else:
            self._set_aside(step, outcome)

    def _copy(self, step: Copy) -> None:
        target = self._places[step.to]
        sibling = self._sibling(step)
        if sibling is not None:
            with contextlib.suppress(OSError, ChangedError):
                new = target.link(step.path, sibling[0], sibling[1], step.replaces)
                self._agree(step.to, step.path, new, step.source)
                return
        with self._places[step.to.other].read(step.path, step.source) as original:
            new = target.write(step.path, original, step.replaces)
            self._agree(step.to, step.path, new, original.seen)

    def _sibling(self, step: Copy) -> tuple[bytes, Seen] | None:
        """Another name of the copied file, under which the other side has it already."""
        if step.source.links < 2 or step.source.facts.kind is Kind.DIRECTORY:
            return None
        for path in self.agreed.named(step.to.other, step.source.identity):
            agreed = self.agreed.get(path)
            if path == step.path or agreed is None:
                continue
            same = agreed.on(step.to.other).facts
            if same == step.source.facts._replace(content=step.source.facts.content or same.content):
                return path, agreed.on(step.to)
        return None

    def _agree(self, to: Side, path: bytes, new: Seen, source: Seen) -> None:
        local, volume = (new, source) if to is Side.LOCAL else (source, new)
        self.agreed.put(path, Agreed(local, volume))

    def _set_aside(self, step: SetAside, outcome: Outcome) -> None:
        aside = self._local.set_aside(step.path, step.target)
        self.agreed.forget([step.path])
        outcome.again.add(parent_of(step.path))
        log.info("two versions of %r: the local one is %r now", step.path, aside)


def _moved_since(shown: Mapping[bytes, Seen], there: Mapping[bytes, bool]) -> list[bytes]:
    """Directories whose entries are uncertain: a program moved or removed them, or put them
    there, between the look at where their names are and the look into them. *there*: all that were looked
    into, and whether they could be."""
    return [
        directory
        for directory, was_there in there.items()
        if directory
        and parent_of(directory) in there
        and was_there != (directory in shown and shown[directory].facts.kind is Kind.DIRECTORY)
    ]
