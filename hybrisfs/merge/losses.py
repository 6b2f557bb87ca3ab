"""Losses: nodes that updates of other devices take away from the view of this one, and which are held.

Before the view follows the registers, this looks at what it would lose. Lost is

* a name, when its node is gone by the rules, whatever update led to that, unless another file with content
  has the same name now: programs save files so;
* the content of a file that becomes empty, or all holes, or shrinks to a tenth or less without a chunk of
  what it held; and a name that a file like that has now;
* a file or folder, with all that is below it, that its owner could read, and after a change of its owner or
  permissions can no more.

Content is *overwritten* when a file that had not changed for `OLD_NS` gets content without any chunk of
what it held. What an editor, a build, a checkout or a copied photo library changes is young, or few among
all, or new. What turns most of what lay untouched into something else within minutes is none of them.

Nothing is lost to anybody that

* its maker takes away within `YOUNG_NS`: `git gc`, trees of builds, temporary files;
* this view has shown for less than `WINDOW` seconds, and that was gone, by the moment of the update, before
  it came here. So a device that joins or comes back does not ask about files that it has never shown.

When `hybrisfs.merge.brake` says that it is too much, the registers follow all the same, as on all devices,
and the log goes on. Only the view keeps the former state of these nodes: it treats that state as unsigned
changes of this device, so the rules go on showing it (`Changes.hold`). All other changes of the other device
are shown. A person either accepts the loss, or has the former state signed, which brings it back on all
devices. A change of such a node on this device shows that the node is wanted, so the former state is signed.
When another device brings the node back, the hold ends.
"""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.kinds import ATTRIBUTES, CONTENT, NODE, PLACE
from hybrisfs.merge.brake import FEW, WINDOW, Brake, Loss, Shown
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
from hybrisfs.state.decisions import Deletion
from hybrisfs.state.registers import after
from hybrisfs.state.shown_nodes import (
    count_below,
    count_names,
    name_of_slot,
    newest_name,
    number_of_name,
    unmerged_ino,
)
from hybrisfs.state.state import Transaction
from hybrisfs.state.versions import first_version, places_once, some_values, version_stamped
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from sync import DecodeError, Rename, SignedHeader, Write

__all__ = ["OLD_NS", "YOUNG_NS", "LossLimits", "Losses"]

_SECOND: Final = 1_000_000_000
YOUNG_NS: Final = 3600 * _SECOND
OLD_NS: Final = 3 * 86_400 * _SECOND
_SHRUNK: Final = 10  # times
_FEW: Final = 8  # names of a node, or nodes of a name, that are looked at


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

    # -- what has come ---------------------------------------------------------------------------

    def note(self, tx: Transaction, branch: bytes, header: SignedHeader, writes: Sequence[Write]) -> None:
        """An update that has just been accepted wrote these registers of the tree. The look that follows does
        the rest, because most of the registers have no former value."""
        if header.writer != tx.updates.device:
            self._noted.append(_Noted(branch, header, writes))

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
            verdict = self._brake.judge(author.device, some, author.moment, self._clock(), shown)
            if verdict is not None:
                self._hold(tx, author, some, verdict.total, verdict.before)
        self._fs.flush(tx)

    def _count_shown(self, tx: Transaction) -> Shown:
        return Shown(count_names(tx), self._fs.total_files)

    def _inode(self, tx: Transaction, node: bytes) -> Inode | None:
        """The inode of a node that has a name and is not merged with another."""
        ino = unmerged_ino(tx, node)
        inode = None if ino is None else self._fs.inodes.get(tx, ino)
        return None if inode is None or inode.orphan else inode

    def _loss(self, tx: Transaction, key: bytes, author: _Author, resolver: Resolver) -> Loss | None:
        node, changes = key[NODE], self._fs.changes
        inode = self._inode(tx, node)
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
        former = Place(*name).encode()
        other = self._in_its_place(tx, *name)
        if other is None:
            return Loss(key, former)
        before, now = (winner(tx.registers.values(content_key(one))) for one in (inode.id, other))
        return self._compared(tx, key, former, before, now, author)

    def _in_its_place(self, tx: Transaction, folder: bytes, name: bytes) -> bytes | None:
        """A node whose register gives it the name in the folder."""
        start = beginning(folder, name)
        for first, last in ((b"", b"\x01"), (b"\x02", b"\x03")):  # as values go on that are no removals
            keys = tx.registers.some_places(start + first, start + last, 1)
            if keys:
                return keys[0][NODE]
        return None

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
        held = _chunks(new)
        if new is None or not held:
            return Loss(key, former)
        if old is None or before is None or not held.isdisjoint(_chunks(old)):
            return None
        if new.size * _SHRUNK <= size:
            return Loss(key, former)
        since = tx.updates.moment_of(before.stamp.branch, before.stamp.clock)
        return Loss(key, former, overwritten=True) if since <= author.moment - self._limits.old_ns else None

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

    def _hold(
        self, tx: Transaction, author: _Author, losses: Sequence[Loss], total: int, before: dict[bytes, bytes]
    ) -> None:
        number = tx.held.begin(author.device, author.hash, author.time_ns, total)
        held = self._fs.changes.held
        tx.held.keep_former(number, [one for one in before.items() if one[0] not in held])
        for loss in losses:
            inode = self._inode(tx, loss.key[NODE])
            assert inode is not None
            tx.held.hold(number, loss.key, loss.names)
            self._fs.changes.hold(loss.key, inode.ino)

    def deletions(self, tx: Transaction) -> list[Deletion]:
        """The mass deletions that wait for a person, oldest first. One of which nothing is held any more is
        over."""
        self._fs.flush(tx)
        return tx.held.waiting()

    def release(self, tx: Transaction, deletion: Deletion, *, wanted: bool) -> tuple[list[Write], set[bytes]]:
        """A person has decided: held registers are signed with the next cut if they are *wanted*, else let
        go. Returns other writes to sign, and the nodes that the view has to show again."""
        rows = tx.held.registers(deletion.number)
        changes = self._fs.changes
        held = [key for key, former in rows if former is None and key in changes.held]
        back = [(key, former) for key, former in rows if former is not None]
        for key in held:
            if wanted:
                changes.mark(key, changes.unsigned[key][0])
            else:
                changes.drop(key)
        tx.held.forget(deletion.number)
        self._fs.flush(tx)
        self._brake.forget(deletion.device)
        if not wanted:
            return [], {key[NODE] for key in held}
        lost: list[Write] = [(key, former) for key, former in back if self._is_gone(tx, key, deletion.device)]
        return lost, {key[NODE] for key, _ in lost}

    def _is_gone(self, tx: Transaction, key: bytes, device: bytes) -> bool:
        """Whether a register still has the value that the device wrote."""
        values = tx.registers.values(key)
        if key[0] == PLACE:
            return is_removed(values)
        signed = [tx.updates.signed_by(one.stamp.branch, one.stamp.clock) for one in values]
        return all(one is not None and one[0] == device for one in signed)


def _content(value: Value | None) -> Content | None:
    try:
        return None if value is None or value.value is None else Content.decode(value.value)
    except DecodeError:
        return None


def _chunks(content: Content | None) -> set[bytes]:
    return {run.chunk for run in content.runs if run.chunk is not None} if content is not None else set()


def _is_readable(mode: int, owned: bool) -> bool:
    """Whether the owner (*owned*), or another user, can read a node of this mode."""
    wanted = 0o5 if stat.S_ISDIR(mode) else 0o4
    return any(mode >> shift & wanted == wanted for shift in ((6,) if owned else (3, 0)))
