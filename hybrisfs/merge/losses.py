"""Losses: nodes that updates of other devices take away from the view of this one, and which are held.

Before the view follows the registers, this looks at what it would lose. Lost is

* a name, when its node is gone by the rules, whatever update led to that, unless another file with content
  has the same name now: programs save files so;
* the content of a file that becomes empty, or all holes, or shrinks to a tenth or less without a chunk of
  what it held; and a name that a file like that has now;
* a file or folder, with all that is below it, that its owner could read, and after a change of its owner or
  permissions can no more.

Content is *overwritten* when a file that had not changed for `YOUNG_NS` gets content that has another
beginning, or less than half of the bytes. So is a file that is gone when another stands beside it whose name
goes on after its name, as `photo.jpg.locked`. It is replaced *wholly* when it had not changed for `OLD_NS`
and nothing of its content stays. Cheap as that is, it tells only where samples are to be looked at
(`hybrisfs.merge.samples`): what editors, builds, checkouts and taggers of photos write is overwritten, too.

Nothing is lost to anybody that

* its maker takes away within `YOUNG_NS`: trees of builds, temporary files;
* git packs: loose objects, and their folders, that a device removes after it has put a pack beside them;
* this view has shown for less than `WINDOW` seconds, and that was gone, by the moment of the update, before
  it came here. So a device that joins or comes back does not ask about files that it has never shown.

When `hybrisfs.merge.brake` says that it is too much, the registers follow all the same, as on all devices,
and the log goes on. Only the view keeps the former state of these nodes: it treats that state as unsigned
changes of this device, so the rules go on showing it (`Changes.hold`). All other changes of the other device
are shown. What is suspected is let through, or waits for a person, after a look at samples. A person either
accepts the loss, or has the former state signed, which brings it back on all devices. A change of such a node
on this device shows that the node is wanted, so the former state is signed. When another device brings the
node back, the hold ends.
"""

from __future__ import annotations

import re
import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.kinds import ATTRIBUTES, CONTENT, NODE, NODE_ID_SIZE, PLACE
from hybrisfs.merge.brake import FEW, WINDOW, Brake, Loss, Shown, Verdict
from hybrisfs.merge.resolver import Resolver
from hybrisfs.merge.rules import is_removed, standing_attr, standing_place, winner
from hybrisfs.registers.node_id import made_at
from hybrisfs.registers.tree import (
    Content,
    Place,
    attr_key,
    beginning,
    beginning_of,
    content_key,
    place_key,
    removed_place,
    slot_of,
)
from hybrisfs.registers.values import Value
from hybrisfs.state.registers import after
from hybrisfs.state.shown_nodes import (
    count_below,
    count_names,
    name_of_node,
    name_of_slot,
    newest_name,
    number_of_name,
    unmerged_ino,
)
from hybrisfs.state.state import Transaction
from hybrisfs.state.versions import first_version, places_once, some_values, version_stamped
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from sync import DecodeError, Rename, SignedHeader, Write

__all__ = ["OLD_NS", "YOUNG_NS", "LossLimits", "Losses", "in_its_place", "shown_inode"]

_SECOND: Final = 1_000_000_000
YOUNG_NS: Final = 3600 * _SECOND
OLD_NS: Final = 3 * 86_400 * _SECOND
_SHRUNK: Final = 10  # times
_FEW: Final = 8  # names of a node, or nodes of a name, that are looked at
_MOST_MADE: Final = 20_000
_PACK: Final = b".pack"
_LOOSE: Final = re.compile(rb"[0-9a-f]{38}|[0-9a-f]{62}")  # names of objects of git, by SHA-1 or SHA-256
_FAN_OUT: Final = re.compile(rb"[0-9a-f][0-9a-f]")  # names of their folders
_SHORT: Final = 0x80  # bytes of a name whose length is one byte


class LossLimits(Struct, frozen=True):
    """What counts as lost, see `hybrisfs.environment.Limits`."""

    few: int = FEW
    window: float = WINDOW
    young_ns: int = YOUNG_NS
    old_ns: int = OLD_NS


class _Noted(NamedTuple):
    """What an update has written, and the branch on which it is."""

    branch: bytes
    header: SignedHeader
    writes: Sequence[Write]


class _Author(NamedTuple):
    device: bytes
    hash: bytes
    time_ns: int
    moment: int


class _Arrival(NamedTuple):
    """Rows of `place` that came from other devices: above number *low*, up to *high*."""

    low: int
    high: int
    at: float  # monotonic
    time_ns: int


class Losses:
    """The losses of one volume."""

    def __init__(
        self,
        fs: FileSystem,
        brake: Brake,
    ) -> None:
        self._fs = fs
        self._time_ns = fs.environment.time_ns
        self._brake = brake
        self._clock = fs.environment.monotonic
        self._limits = fs.environment.limits.of(LossLimits)
        self._noted: list[_Noted] = []  # since the last look
        self._arrivals: list[_Arrival] = []
        self._living: dict[bytes, set[int]] = {}  # slots of names that nodes have, during a look
        self._made: dict[bytes, bytes] = {}  # keys of places that came lately, by folder and name up to a dot
        self._packed: dict[bytes, None] = {}  # devices that put packs of git into folders lately, with these
        self.suspected = Topic[[]]()
        """Overwritten files are held, samples of which are to be looked at."""

    # -- what has come ---------------------------------------------------------------------------

    def note(self, tx: Transaction, branch: bytes, header: SignedHeader, writes: Sequence[Write]) -> None:
        """An update that has just been accepted wrote these registers of the tree. The look that follows does
        the rest, because most of the registers have no former value."""
        if header.writer != tx.updates.device:
            self._noted.append(_Noted(branch, header, writes))
            self._note_made(header.writer, writes)

    def renamed(self, rename: Rename) -> None:
        """A part of a branch of the log has another name now."""
        self._noted = [
            one._replace(branch=rename.new)
            if one.branch == rename.old and one.header.clock > rename.above
            else one
            for one in self._noted
        ]

    def _authors(self, tx: Transaction, new: Container[bytes]) -> dict[bytes, _Author]:
        """The registers that may have lost something, each with its last writer, in that order. Those
        in *new* had no value before."""
        last: dict[bytes, _Noted] = {}
        noted, self._noted = self._noted, []
        held = self._fs.changes.held
        for one in reversed(noted):
            for key, value in reversed(one.writes):
                if (
                    key not in new
                    and key not in last
                    and (key[0] != PLACE or key in held or removed_place(value) is not None)
                ):
                    last[key] = one
        author = cache(partial(self._author, tx))
        return {key: author(one.branch, one.header) for key, one in reversed(last.items())}

    def _author(self, tx: Transaction, branch: bytes, header: SignedHeader) -> _Author:
        moment = tx.updates.moment_of(branch, header.clock)
        return _Author(header.writer, header.hash, header.time_ns, moment)

    def came_above(self, tx: Transaction, low: int) -> None:
        """The view now shows what other devices have made: names with numbers above *low*."""
        high, now = newest_name(tx), self._clock()
        while self._arrivals and self._arrivals[0].at < now - self._limits.window:
            del self._arrivals[0]
        if high > low and (not self._arrivals or self._arrivals[-1].high <= low):
            self._arrivals.append(_Arrival(low, high, now, self._time_ns()))

    def _was_seen(self, number: int, moment: int) -> bool:
        """Whether the view had shown the name with this number before that moment, or for a while."""
        at = bisect_left(self._arrivals, number, key=lambda one: one.high)
        if at == len(self._arrivals) or number <= self._arrivals[at].low:
            return True
        one = self._arrivals[at]
        return one.at < self._clock() - self._limits.window or moment > one.time_ns

    # -- looking ---------------------------------------------------------------------------------

    def look(
        self, tx: Transaction, resolver: Callable[[Transaction], Resolver], new: Collection[bytes]
    ) -> None:
        """Hold losses that are too many. The registers have their new values already, the view does not
        follow yet. *new*: registers that got their first value since the last look."""
        found = self._authors(tx, new)
        if not found or (self._brake.share >= 1 and not self._fs.changes.held):
            return
        self._fs.flush(tx)
        self._living = {}
        resolved = resolver(tx)
        losses: dict[bytes, list[Loss]] = {}
        authors: dict[bytes, _Author] = {}
        for key, author in found.items():
            loss = self._loss(tx, key, author, resolved)
            if loss is not None:
                losses.setdefault(author.hash, []).append(loss)
                authors[author.hash] = author
        if not losses:
            return
        shown = cache(partial(self._count_shown, tx))
        self._brake.begin()
        for update, some in losses.items():
            author = authors[update]
            for verdict in self._brake.judge(author.device, some, author.moment, self._clock(), shown):
                self._hold(tx, author, verdict)
        self._fs.flush(tx)

    def _count_shown(self, tx: Transaction) -> Shown:
        return Shown(count_names(tx), self._fs.total_files)

    def _loss(self, tx: Transaction, key: bytes, author: _Author, resolver: Resolver) -> Loss | None:
        node, changes = key[NODE], self._fs.changes
        inode = shown_inode(tx, self._fs, node)
        if inode is None:
            return None
        if key in changes.held:
            if not self._stays_held(tx, key, inode, author):
                changes.drop(key)
            return None
        if key in changes.unsigned:
            return None
        if key[0] == PLACE:
            loss = self._lost_name(tx, key, inode, author, resolver)
        elif key[0] == CONTENT:
            loss = self._lost_content(tx, key, inode, author)
        else:
            loss = self._lost_access(tx, key, inode)
        if loss is None or self._is_young(tx, node, author) or not self._is_shown(tx, inode, loss, author):
            return None
        return loss

    def _stays_held(self, tx: Transaction, key: bytes, inode: Inode, author: _Author) -> bool:
        if key[0] == PLACE:
            return is_removed(tx.registers.values(key))
        if not tx.held.is_held_from(author.device, key):
            return False  # another device has given it a value
        if key[0] == ATTRIBUTES:
            return self._loses_access(tx, inode)
        return self._lost_content(tx, key, inode, author) is not None

    def _is_shown(self, tx: Transaction, inode: Inode, loss: Loss, author: _Author) -> bool:
        """Whether the view has shown the lost node."""
        slot = slot_of(loss.key) if loss.key[0] == PLACE else None
        number = number_of_name(tx, inode.ino, slot)
        return number is not None and self._was_seen(number, author.moment)

    def _is_young(self, tx: Transaction, node: bytes, author: _Author) -> bool:
        """Whether the device made the node itself a short time before, and also every other node that had one
        of its names. A program that puts a copy in the place of an older file, and then removes the copy,
        removes that file."""
        since = author.moment - self._limits.young_ns
        if not self._is_made_by(tx, node, author.device, since):
            return False
        key, others = place_key(node, 0), set[bytes]()
        values = some_values(tx, key, _FEW + 1)
        for start in {beginning_of(value) for value in values if value is not None}:
            for found in (tx.registers.some_places, partial(places_once, tx)):
                keys = found(start, after(start), _FEW + 1)
                if len(keys) > _FEW:
                    return False
                others.update(other[NODE] for other in keys)
        return len(values) <= _FEW and all(self._is_made_by(tx, one, author.device, since) for one in others)

    def _is_made_by(self, tx: Transaction, node: bytes, device: bytes, since: int) -> bool:
        """Whether the device has made the node, after the moment *since*."""
        made = made_at(node)
        if made is None or made < since:
            return False
        key = place_key(node, 0)
        version = first_version(tx, key)
        if version is not None:
            stamp, first = version
        else:
            standing = standing_place(tx.registers.values(key))
            if standing is None or standing[1].removed:
                return False
            stamp = standing[0]
            first = tx.updates.moment_of(stamp.branch, stamp.clock)
        signed = tx.updates.signed_by(stamp.branch, stamp.clock)
        return first >= since and signed is not None and signed[0] == device

    # -- names -----------------------------------------------------------------------------------

    def _lost_name(
        self, tx: Transaction, key: bytes, inode: Inode, author: _Author, resolver: Resolver
    ) -> Loss | None:
        if not is_removed(tx.registers.values(key)):
            return None
        slot = slot_of(key)
        if not inode.is_directory:
            if inode.id not in self._living:
                self._living[inode.id] = {one.slot for one in resolver.names(inode.id)}
            if slot in self._living[inode.id]:
                return None  # others had not seen it go
        name = name_of_slot(tx, inode.ino, slot)
        if name is None:
            return None
        if self._is_packed(tx, author.device, *name):
            return None
        former = Place(*name).encode()
        before = winner(tx.registers.values(content_key(inode.id)))
        other = in_its_place(tx, *name)
        if other is not None:
            now = winner(tx.registers.values(content_key(other)))
            return self._compared(tx, key, former, before, now, author)
        if before is not None and self.beside(tx, *name) is not None:
            return self._overwritten(tx, key, former, before, author, names=1)
        return Loss(key, former)

    def _note_made(self, device: bytes, writes: Sequence[Write]) -> None:
        for key, value in writes:
            if key[0] == PLACE and value is not None:
                start = beginning_of(value)
                stem, dot, _ = start.rpartition(b".")
                if dot and len(stem) > NODE_ID_SIZE and removed_place(value) is None:
                    self._made[_without_length(stem)] = key
                    if start.endswith(_PACK):
                        self._packed[device + start[:NODE_ID_SIZE]] = None
        while len(self._made) > _MOST_MADE:
            del self._made[next(iter(self._made))]
        while len(self._packed) > _MOST_MADE:
            del self._packed[next(iter(self._packed))]

    def beside(self, tx: Transaction, folder: bytes, name: bytes) -> bytes | None:
        """A node that was made lately beside the name: under that name and something after a dot, or with
        something else after its last dot."""
        stem = name.rpartition(b".")[0]
        for base in (name, stem):
            key = self._made.get(folder + base) if base else None
            if key is not None and not is_removed(tx.registers.values(key)):
                return key[NODE]
        return None

    def _is_packed(self, tx: Transaction, device: bytes, folder: bytes, name: bytes) -> bool:
        """Whether the name is that of a loose object of git, or of a folder of these, and the device has put
        a pack beside them lately. Nobody looks into the pack."""
        if _LOOSE.fullmatch(name):
            of = name_of_node(tx, folder)
            if of is None:
                return False
            folder, name = of
        if not self._packed or not _FAN_OUT.fullmatch(name):
            return False
        packs = in_its_place(tx, folder, b"pack")
        return packs is not None and device + packs in self._packed

    # -- contents --------------------------------------------------------------------------------

    def _lost_content(self, tx: Transaction, key: bytes, inode: Inode, author: _Author) -> Loss | None:
        values = tx.registers.values(key)
        now = winner(values)
        if not inode.size or any(tx.registers.number_of(one.stamp) == inode.content_stamp for one in values):
            return None  # it is still shown, perhaps beside another
        before = version_stamped(tx, key, inode.content_stamp)
        former = None if before is None else before.value
        return self._compared(tx, key, former, before, now, author, size=inode.size)

    def _compared(
        self,
        tx: Transaction,
        key: bytes,
        former: bytes | None,
        before: Value | None,
        now: Value | None,
        author: _Author,
        size: int = 0,
    ) -> Loss | None:
        """The loss when the content *now* stands in the place of the one *before*, of *size* bytes."""
        old, new = _content(before), _content(now)
        if old is not None:
            size = old.size
        if not size:
            return None
        if new is None or not _chunks(new):
            return Loss(key, former)
        if old is None or before is None:
            return None
        kept = _kept(old, new)
        if not kept and new.size * _SHRUNK <= size:
            return Loss(key, former)
        if 2 * kept >= size and _begin_alike(old, new):
            return None
        return self._overwritten(tx, key, former, before, author, names=0, kept=kept)

    def _overwritten(
        self,
        tx: Transaction,
        key: bytes,
        former: bytes | None,
        before: Value,
        author: _Author,
        *,
        names: int,
        kept: int = 0,
    ) -> Loss | None:
        """The loss when something stands in the place of the content *before*, of which so many bytes are
        *kept*. None when it was young, and no name goes with it."""
        since = tx.updates.moment_of(before.stamp.branch, before.stamp.clock)
        if since > author.moment - self._limits.young_ns:
            return Loss(key, former, names) if names else None
        wholly = not kept and since <= author.moment - self._limits.old_ns
        return Loss(key, former, names, overwritten=True, wholly=wholly)

    # -- access ----------------------------------------------------------------------------------

    def _loses_access(self, tx: Transaction, inode: Inode) -> bool:
        standing = standing_attr(tx.registers.values(attr_key(inode.id)))
        if standing is None or not _is_readable(inode.mode, owned=True):
            return False
        attr = standing[1]
        return not _is_readable(attr.mode, owned=attr.uid == inode.uid)

    def _lost_access(self, tx: Transaction, key: bytes, inode: Inode) -> Loss | None:
        if not self._loses_access(tx, inode):
            return None
        names = 1
        if inode.is_directory:
            names = max(names, count_below(tx, inode.ino))
        return Loss(key, self._fs.attributes.record(tx, inode).encode(), names=names)

    # -- what is held ----------------------------------------------------------------------------

    def _hold(self, tx: Transaction, author: _Author, verdict: Verdict) -> None:
        number = tx.held.begin(author.device, author.hash, author.time_ns, verdict.total, verdict.cause)
        held = self._fs.changes.held
        tx.held.keep_former(number, [one for one in verdict.before.items() if one[0] not in held])
        for loss in verdict.losses:
            inode = shown_inode(tx, self._fs, loss.key[NODE])
            assert inode is not None
            tx.held.hold(number, loss.key, max(loss.names, 1))
            self._fs.changes.hold(loss.key, inode.ino)
        if verdict.cause.is_suspicion:
            self.suspected()


def _content(value: Value | None) -> Content | None:
    try:
        return None if value is None or value.value is None else Content.decode(value.value)
    except DecodeError:
        return None


def _chunks(content: Content) -> set[bytes]:
    return {run.chunk for run in content.runs if run.chunk is not None}


def _kept(old: Content, new: Content) -> int:
    """How many bytes of a new content are from chunks of the old one."""
    chunks = _chunks(old)
    return sum(run.length for run in new.runs if run.chunk in chunks)


def _begin_alike(old: Content, new: Content) -> bool:
    return (old.runs[0].chunk, old.runs[0].skip) == (new.runs[0].chunk, new.runs[0].skip)


def _without_length(start: bytes) -> bytes:
    """The folder and the name of the beginning of a place, without the length that stands between."""
    return start[:NODE_ID_SIZE] + start[NODE_ID_SIZE + (1 if start[NODE_ID_SIZE] < _SHORT else 2) :]


def _is_readable(mode: int, owned: bool) -> bool:
    """Whether the owner (*owned*), or another user, can read a node of this mode."""
    wanted = 0o5 if stat.S_ISDIR(mode) else 0o4
    return any(mode >> shift & wanted == wanted for shift in ((6,) if owned else (3, 0)))


def shown_inode(tx: Transaction, fs: FileSystem, node: bytes) -> Inode | None:
    """The inode of a node that has a name and is not merged with another."""
    ino = unmerged_ino(tx, node)
    inode = None if ino is None else fs.inodes.get(tx, ino)
    return None if inode is None or inode.orphan else inode


def in_its_place(tx: Transaction, folder: bytes, name: bytes) -> bytes | None:
    """A node whose register gives it the name in the folder."""
    start = beginning(folder, name)
    for first, last in ((b"", b"\x01"), (b"\x02", b"\x03")):  # as values go on that are no removals
        keys = tx.registers.some_places(start + first, start + last, 1)
        if keys:
            return keys[0][NODE]
    return None
