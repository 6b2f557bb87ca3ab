"""Taking in updates of other devices: log, registers, view.

Each update is applied whole or not at all, and no program sees the view between the registers and the tree
that follows from them: a rename never appears without the content it brings.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import Final

from hybrisfs.kinds import (
    ASSIGNMENT,
    ATTRIBUTES,
    CONTENT,
    EPOCH,
    ID,
    IGNORE_RULE,
    MEMBER,
    NODE,
    PACK,
    PLACE,
    REWRITTEN,
    ROLE,
    SIGNED_KIT,
    Trait,
    having,
)
from hybrisfs.log import Merged, Written, is_kept
from hybrisfs.members.minutes import End
from hybrisfs.members.roles import Role
from hybrisfs.merge.authority import is_assigning, permitted
from hybrisfs.merge.losses import Losses
from hybrisfs.merge.newcomers import Newcomers, build_view
from hybrisfs.merge.origins import LogOrigins
from hybrisfs.merge.packs import Packs, Placement
from hybrisfs.merge.refresh import Refresh
from hybrisfs.merge.resolver import Resolver
from hybrisfs.merge.rules import is_removed, standing_attr, standing_place
from hybrisfs.merge.unsigned import UnsignedView, unsigned_place
from hybrisfs.merge.view_rows import Nodes, begin_beside
from hybrisfs.recovery.record import SignedKit
from hybrisfs.registers.node_id import FIRST_OF_KINDS, kind_of
from hybrisfs.registers.tree import (
    Attr,
    Place,
    attr_key,
    content_key,
    is_of_tree,
    place_key,
    slot_of,
)
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.shown_nodes import is_bare, newest_name, nodes_shown_as
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.unseen import Change, NameChange
from sync import Accepted, DecodeError, Rename, Write

__all__ = ["Arrivals"]

log = logging.getLogger(__name__)

_TREE: Final = having(Trait.TREE)
_DIRECT: Final = having(Trait.DIRECT)
_SAID: Final = having(Trait.SAID)
_KIN: Final = having(Trait.KIN)
_CLOUDS: Final = having(Trait.CLOUDS)
_OF_MEMBERS: Final = having(Trait.MEMBERS)
_OF_KEYS: Final = _OF_MEMBERS | {EPOCH}  # the devices that have keys of epochs follow from these
_TAKEN_UP: Final = _OF_KEYS | _CLOUDS | {IGNORE_RULE}


class Arrivals:
    """Applies accepted updates to the view of one volume."""

    def __init__(
        self,
        tx: Transaction,
        fs: FileSystem,
        losses: Losses,
    ) -> None:
        """*losses* holds registers that are lost in mass."""
        self._losses = losses
        self._fs = fs
        self._nodes = Nodes(fs)
        self._packs = Packs(fs)
        self.clouds_changed = Topic[[]]()
        self.grants_changed = Topic[[Transaction, Sequence[bytes]]]()
        """Called with the keys of epoch registers that have other values, and when members came or went."""
        self._disturb_again(tx)
        # Nodes whose registers have changed since the last refresh, with the slots of those of which nothing
        # has changed but places.
        self._waiting: dict[bytes, set[int] | None] = dict.fromkeys(tx.conflicts.moved_for_nobody())
        # Names of which copies are called after a device that has another name now.
        self._renamed: set[tuple[int, bytes]] = set()
        self._only: dict[bytes, Value] = {}  # registers that got their first value since then
        self._unwritten: list[Written] = []  # what is to be put into registers yet
        self._assigning = False  # whether assignments to areas are among that
        self._kinds: dict[bytes, int] = {}  # of nodes whose ids do not tell it, as that has them
        self._placements: list[Placement] = []  # what is to be put into packs yet
        self._edited: set[bytes] | None = (
            None  # nodes with unsigned places or contents, while the lock is held
        )
        self._changes: list[Change] = []  # to report to the kernel

    def _disturb_again(self, tx: Transaction) -> None:
        """Find names that may have come or gone without a signed update before the last stop."""
        disturbed = self._fs.inodes.disturbed
        disturbed.update(tx.places.contested())
        for key, (ino, _) in self._fs.changes.unsigned.items():
            if key[0] != PLACE:
                continue
            shown = tx.places.at(ino, slot_of(key))
            if shown is not None:
                disturbed.add((shown.parent, shown.plain))
            standing = standing_place(tx.registers.values(key))
            inode = self._nodes.find(tx, standing[1].parent) if standing else None
            if standing is not None and inode is not None:
                disturbed.add((inode.ino, standing[1].name))

    def take(self, tx: Transaction, accepted: Accepted) -> None:
        """Take in the writes of an update just accepted by the log; `refresh` follows, at the latest when the
        lock is let go. What follows for registers and packs is done for many updates at once."""
        if accepted.renames:
            self.renamed(tx, accepted.renames)
        kept, others = _parted(accepted.update.writes)
        if tx.registers.roles or is_assigning(others):
            accepted = self._permitted(tx, accepted)
            kept, others = _parted(accepted.update.writes)
        header, branch = accepted.update.header, accepted.branch
        nodes = {key[NODE] for key, _ in kept}
        if nodes and min(nodes) < FIRST_OF_KINDS:
            kept = [one for one in kept if one[0][ID] >= FIRST_OF_KINDS or not self._twists(tx, *one)]
        self._note_changed(key for key, _ in kept)
        if self._is_edited(nodes):
            self._waiting.update(dict.fromkeys(nodes))
            self._make_way(tx, kept)
        self._losses.note(tx, branch, header, kept)
        stamp = Stamp(header.clock, branch)
        if others:
            kept = [*kept, *(one for one in others if is_kept(one[0]))]
        self._unwritten.append(Written(stamp, accepted.dependencies, kept))
        if others:
            self._take_others(tx, accepted, stamp, others)
        if tx.chunks.condemned:
            self._write(tx)  # what needs a chunk of a condemned pack is to be noticed in its turn

    def _note_changed(self, keys: Iterable[bytes]) -> None:
        """These registers of nodes are written to."""
        waiting = self._waiting
        for key in keys:
            node = key[NODE]
            if key[0] != PLACE:
                waiting[node] = None
            elif (slots := waiting.setdefault(node, set())) is not None:
                slots.add(slot_of(key))

    def _permitted(self, tx: Transaction, accepted: Accepted) -> Accepted:
        """The update, reduced to the writes that its writer was allowed to sign then."""
        if self._assigning:
            self._write(tx)
        update, roles = accepted.update, tx.registers.roles
        heard = permitted(update, accepted.dependencies, roles, tx.updates.vector_of)
        if heard is update:
            return accepted
        void, device = len(update.writes) - len(heard.writes), update.header.writer
        log.warning("%d writes of %s do not count: it may not sign them", void, device.hex())
        if roles.role(device, accepted.dependencies, tx.updates.vector_of) is not Role.FULL:
            roles.overstepped.add(device)
        return accepted._replace(update=heard)

    def _take_others(
        self, tx: Transaction, accepted: Accepted, stamp: Stamp, others: Sequence[Write]
    ) -> None:
        """Take in writes to registers of packs, devices and the volume."""
        self._note_packs(tx, accepted, stamp, [one for one in others if one[0][0] == PACK])
        for key, value in others:
            if key[0] in _SAID:
                tx.registers.minutes.note(stamp, key, value)
            if key[0] == ROLE:
                tx.registers.roles.note(stamp, key, value)
            if key[0] == ASSIGNMENT:
                self._assigning = True
            if key[0] in _DIRECT:
                self._fs.facets.heard(tx, key, value)
            if key[0] == REWRITTEN:
                self._write(tx)
                self._packs.rewrite(tx, key[ID], value, dict(accepted.update.writes))
        self._take_up(tx, [key for key, _ in others])

    def _note_packs(self, tx: Transaction, accepted: Accepted, stamp: Stamp, writes: Sequence[Write]) -> None:
        """Store what the update says of packs with the next `_write`."""
        ended = [key[ID] for key, value in writes if value is None]
        ends: Mapping[bytes, End] = {}
        if ended:
            author = accepted.update.header.writer
            ends = tx.registers.minutes.judge(author, accepted.dependencies, ended, tx.updates.vector_of)
        for key, value in writes:
            end = ends.get(key[ID], End.AGREED) if value is None else End.AGREED
            if end is End.AGREED:
                self._placements.append(Placement(key[ID], value, stamp))
                continue
            log.warning("the end of pack %s: %s", key[ID].hex(), end.value)
            if end is End.DOUBTFUL:
                self._placements.append(Placement(key[ID], None, stamp, hearsay=True))

    def _twists(self, tx: Transaction, key: bytes, value: bytes | None) -> bool:
        """Whether attributes would change the kind of a node whose id does not say its kind
        (`hybrisfs.merge.authority`)."""
        if key[0] != ATTRIBUTES or value is None or kind_of(key[ID]) is not None:
            return False
        kind = stat.S_IFMT(Attr.decode(value).mode)
        if key not in self._kinds:
            standing = standing_attr(tx.registers.values(key))
            self._kinds[key] = kind if standing is None else stat.S_IFMT(standing[1].mode)
        return kind != self._kinds[key]

    def absorb(self, tx: Transaction, changes: Sequence[Merged]) -> None:
        """Put the values that a checkpoint and this device have together into the registers; `refresh`
        follows."""
        self._write(tx)
        come = [(one.key, value.value) for one in changes for value in one.come]
        nodes = {key[NODE] for key, _ in come if is_of_tree(key)}
        if self._is_edited(nodes):
            self._make_way(tx, come)
        tx.registers.merge(changes)
        self._waiting.update(dict.fromkeys(nodes))
        for one in changes if self._only else ():
            self._only.pop(one.key, None)
        for one in changes:
            for value in one.come if one.key[0] in _SAID else ():
                tx.registers.minutes.note(value.stamp, one.key, value.value, begins=True)
            for value in one.come if one.key[0] in _DIRECT else ():
                self._fs.facets.heard(tx, one.key, value.value)
        if any(one.key[0] == ROLE for one in changes):
            tx.registers.roles.load()
        self._take_up(tx, [key for key, _ in come if key[0] not in _TREE])

    def place(self, tx: Transaction, placements: Sequence[Placement]) -> None:
        """See `Packs.take`."""
        self._write(tx)
        self._packs.take(tx, placements)

    def unveil(self, tx: Transaction) -> list[Change]:
        """`refresh` after much has been absorbed: at once when the view shows nothing yet."""
        self._write(tx)
        if not is_bare(tx):
            return self.refresh(tx)
        self._edited = None
        self._waiting.clear()
        self._only.clear()
        changes, self._changes = self._changes, []
        changes += build_view(tx, self._fs, tx.registers, LogOrigins(tx))
        self._fs.ignored.look_for_files(tx)
        self._losses.came_above(tx, 0)
        return changes

    def _take_up(self, tx: Transaction, keys: Sequence[bytes]) -> None:
        """Act on registers of devices and of the volume that have other values now."""
        kinds = {key[0] for key in keys} & _TAKEN_UP
        if not kinds:
            return
        self._write(tx)
        if not kinds.isdisjoint(_CLOUDS):
            self.clouds_changed()
        if IGNORE_RULE in kinds:
            self._fs.ignored.rules_changed(tx, [key for key in keys if key[0] == IGNORE_RULE])
        if not kinds.isdisjoint(_OF_MEMBERS):
            tx.members.words_changed()
            for key in (key for key in keys if key[0] == SIGNED_KIT):
                self._learn_reserve(tx, key)
            named = [key for key in keys if key[0] == MEMBER]
            before = [tx.members.name_of(key[ID]) for key in named]
            for key in named:
                tx.members.learn(key, tx.registers.values(key), LogOrigins(tx).signer)
            if [tx.members.name_of(key[ID]) for key in named] != before:
                self._renamed.update(tx.places.contested())
            if not kinds.isdisjoint(_KIN):
                tx.registers.roles.kin_changed()
            tx.updates.set_members(tx.members.writers())
        # After the members: a removed one may not be given keys by it.
        if not kinds.isdisjoint(_OF_KEYS):
            self.grants_changed(tx, [key for key in keys if key[0] == EPOCH])

    def _learn_reserve(self, tx: Transaction, key: bytes) -> None:
        for value in tx.registers.values(key):
            with suppress(DecodeError):  # an earlier version kept it unread
                public = SignedKit.decode(key, value.value or b"").public
                tx.members.learn_reserve(public, LogOrigins(tx).signer(value.stamp), value.stamp.clock)

    def _write(self, tx: Transaction, renames: Sequence[Rename] = ()) -> None:
        """Write the accepted updates to registers and packs. *renames*: see `Registers.write`."""
        unwritten, self._unwritten = self._unwritten, []
        self._assigning = False
        self._kinds.clear()
        if unwritten:
            for key, only in tx.registers.write(unwritten, renames).items():
                if only is None:
                    self._only.pop(key, None)
                else:
                    self._only[key] = only
        placements, self._placements = self._placements, []
        self._packs.take(tx, placements)

    def renamed(self, tx: Transaction, renames: Sequence[Rename]) -> None:
        """Branches of the log have other names now."""
        if renames:
            self._write(tx, renames)
        for rename in renames:
            tx.registers.minutes.rename(rename)
            self._losses.renamed(rename)
            self._rename(tx, rename)
        if renames and tx.registers.roles:
            tx.registers.roles.load()

    def _rename(self, tx: Transaction, rename: Rename) -> None:
        """Values of a forked device get other names, which may change the winner."""
        self._only.clear()
        tx.packs.rename(rename)
        for key, stamps in tx.registers.rename_branch(rename.old, rename.above, rename.new).items():
            if not is_of_tree(key):
                continue
            self._waiting[key[NODE]] = None
            inode = self._nodes.find(tx, key[NODE]) if key[0] == CONTENT else None
            for stamp in stamps:
                if inode and inode.content_stamp == tx.registers.number_of(stamp):
                    inode.content_stamp = tx.registers.number_of(Stamp(stamp.clock, rename.new))
                    self._fs.inodes.touch(inode)

    def refresh(self, tx: Transaction) -> list[Change]:
        """Let the view show the accepted updates. Returns the changes to report to the kernel."""
        self._write(tx)
        self._edited = None
        self._losses.look(tx, self._resolver, self._only)
        waiting, self._waiting = self._waiting, {}
        renamed, self._renamed = self._renamed, set()
        before = newest_name(tx)
        slots = {node: slots for node, slots in waiting.items() if slots is not None}
        changes = self._refresh(tx, set(waiting), renamed, slots)
        self._losses.came_above(tx, before)
        return changes

    def device_renamed(self, tx: Transaction) -> list[Change]:
        """A device has another name, which conflict names use from now on. Returns the changes to report to
        the kernel."""
        return self._refresh(tx, set(), tx.places.contested())

    def _resolver(self, tx: Transaction) -> Resolver:
        return Resolver(tx.registers, UnsignedView(tx, self._fs), LogOrigins(tx))

    def reveal(self, tx: Transaction, nodes: Iterable[bytes]) -> list[Change]:
        """Show *nodes*, which an own update has written, as their registers say. Returns the changes to
        report to the kernel."""
        self._only.clear()
        return self._refresh(tx, set(nodes), ())

    def folder(self, tx: Transaction, node: bytes) -> Inode | None:
        """The inode of a directory; None when no register names the directory. A directory that is not shown
        any more gets an inode without a name, and `reveal` names it if something unsigned stands in it by
        then."""
        inode = self._nodes.showing(tx, node)
        if inode is not None:
            return inode
        resolver = self._resolver(tx)
        attr = resolver.attr(node)
        return self._nodes.make(tx, node, attr) if attr is not None and resolver.exists(node) else None

    def signed(self, tx: Transaction, nodes: Iterable[bytes]) -> list[Change]:
        """An own update has written to *nodes*: show what follows for other nodes. Returns the changes to
        report to the kernel."""
        self._only.clear()
        self._fs.flush(tx)
        nodes = set(nodes)
        disturbed, self._fs.inodes.disturbed = self._fs.inodes.disturbed, set()
        folders = [one for ino in {ino for ino, _ in disturbed} for one in nodes_shown_as(tx, ino)]
        if tx.conflicts.are_any():
            return self._refresh(tx, {*nodes, *folders}, disturbed)
        # A node that was removed elsewhere and survived under its former name may have got a better one.
        survivors = {one for one in tx.registers.linked(nodes) if self._has_survived(tx, one)}
        return self._refresh(tx, {*survivors, *(one for one in folders if self._is_removed(tx, one))}, ())

    def _has_survived(self, tx: Transaction, node: bytes) -> bool:
        """Whether the view may show a name of the node that another device has removed."""
        removed = tx.registers.removed_slots(node)
        if not removed:
            return False
        inode = self._nodes.find(tx, node)
        return inode is None or not removed.isdisjoint(tx.places.slots(inode.ino))

    def _refresh(
        self,
        tx: Transaction,
        nodes: set[bytes],
        disturbed: Iterable[tuple[int, bytes]],
        slots: Mapping[bytes, set[int]] = MappingProxyType({}),
    ) -> list[Change]:
        changes = self._shown(tx, nodes, disturbed, slots)
        self._fs.unseen.names_changed(
            tx,
            (NameChange(one.ino, one.name, one.gone is not None) for one in changes if one.name is not None),
        )
        return changes

    def _shown(
        self,
        tx: Transaction,
        nodes: set[bytes],
        disturbed: Iterable[tuple[int, bytes]],
        slots: Mapping[bytes, set[int]],
    ) -> list[Change]:
        changes, self._changes = self._changes, []
        only, self._only = self._only, {}
        if not nodes and not disturbed:
            return changes
        self._fs.flush(tx)
        newcomers = Newcomers(self._fs, tx.registers, only)
        rest = newcomers.show(tx, nodes)
        changes += newcomers.changes
        if not rest and not disturbed:
            return changes
        refresh = Refresh(tx, self._fs, tx.registers, LogOrigins(tx))
        return changes + refresh.run(tx, rest, disturbed, slots)

    def _is_removed(self, tx: Transaction, directory: bytes) -> bool:
        return is_removed(tx.registers.values(place_key(directory, 0)))

    # -- what is unsigned here -------------------------------------------------------------------

    def _is_edited(self, nodes: set[bytes]) -> bool:
        """Whether some of these have places or contents here that are not signed yet."""
        if self._edited is None:
            # No other device knows of what is aside.
            changes = self._fs.changes
            self._edited = {
                key[NODE]
                for key in chain(changes.held, (one[0] for one in changes.spans()))
                if key[0] in (PLACE, CONTENT)
            }
        return not self._edited.isdisjoint(nodes)

    def _make_way(self, tx: Transaction, writes: Sequence[Write]) -> None:
        """Unsigned edits of this device were made without knowledge of these writes: keep both."""
        unsigned = self._fs.changes.unsigned
        self._write(tx)
        removed: dict[bytes, set[int]] = {}
        for key, value in writes:
            if key[0] == PLACE and _is_removal(value):
                removed.setdefault(key[NODE], set()).add(slot_of(key))
            elif key[0] == PLACE and key in unsigned:
                self._take_back_removal(tx, key)
            elif key[0] == CONTENT:
                node = key[NODE]
                for place in tx.registers.with_prefix(PLACE.key(node)):
                    self._take_back_removal(tx, place)
                if key in unsigned and key not in self._fs.changes.held:
                    inode = self._fs.inodes.get(tx, unsigned[key][0])
                    if not inode.orphan and inode.id == node:
                        self._split(tx, inode)
        for node, slots in removed.items():
            self._leave_a_name(tx, node, slots)

    def _take_back_removal(self, tx: Transaction, key: bytes) -> None:
        """The node survives: the program that removed it had not seen what others did to it."""
        entry = self._fs.changes.unsigned.get(key)
        if entry is None:
            return
        self._fs.flush(tx)
        if self._nodes.find(tx, key[NODE]) is None and unsigned_place(tx, self._fs, key, entry[0]) is None:
            self._fs.changes.drop(key)

    def _leave_a_name(self, tx: Transaction, node: bytes, slots: set[int]) -> None:
        """Another device removed these names of a node. If they were all that the node had left here, drop
        the unsigned removals of this device: signed now, they would claim to know that no name remains."""
        inode = self._nodes.find(tx, node)
        if inode is None or inode.is_directory:
            return
        self._fs.flush(tx)
        if slots.issuperset(tx.places.slots(inode.ino)):
            for key in tx.registers.with_prefix(PLACE.key(node)):
                entry = self._fs.changes.unsigned.get(key)
                if entry is not None and unsigned_place(tx, self._fs, key, entry[0]) is None:
                    self._fs.changes.drop(key)

    def _split(self, tx: Transaction, inode: Inode) -> None:
        """The node gets the version that has come. The unsigned version becomes a file of its own beside it,
        and programs that have the file open go on with that one."""
        node = inode.id
        self._fs.flush(tx)
        names = list(tx.places.of(inode.ino).values())
        for key in (attr_key(node), content_key(node)):
            self._fs.changes.drop(key)
        self._nodes.replace(tx, inode)
        parent = names[0].parent
        copy = begin_beside(tx, self._fs, inode, parent, names[0].plain, LogOrigins(tx).myself(), node)
        self._fs.flush(tx)
        self._changes += [Change(at, called, (inode.ino, inode.mode)) for at, called, _ in names]
        self._changes += [Change(parent, copy), Change(parent), Change(inode.ino)]
        self._waiting[node] = None


def _parted(writes: Sequence[Write]) -> tuple[list[Write], list[Write]]:
    """The writes to registers of the tree, and the other writes."""
    kept = [one for one in writes if one[0][0] in _TREE]
    return kept, [] if len(kept) == len(writes) else [one for one in writes if one[0][0] not in _TREE]


def _is_removal(value: bytes | None) -> bool:
    try:
        return value is None or Place.decode(value).removed
    except DecodeError:
        return True
