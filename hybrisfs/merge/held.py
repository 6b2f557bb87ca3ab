"""What is held of what other devices took away or overwrote (`hybrisfs.merge.losses`), and how that ends."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from hybrisfs.kinds import CONTENT, NODE, PLACE
from hybrisfs.merge.brake import WINDOW_NS, Brake
from hybrisfs.merge.losses import Losses, in_its_place, shown_inode
from hybrisfs.merge.rules import is_removed, winner
from hybrisfs.registers.tree import Place, content_key, place_key, slot_of
from hybrisfs.registers.values import Value
from hybrisfs.state.decisions import Cause, Deletion
from hybrisfs.state.shown_nodes import Name, name_of_slot, unmerged_ino
from hybrisfs.state.state import Transaction
from hybrisfs.state.versions import Interval, intervals_of, version_stamped
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, Write

__all__ = ["Compared", "Held"]


class Compared(NamedTuple):
    """A register that is held, of a node that has this inode here: the content of the file that is shown, and
    what is there in its stead by the log; None: nothing, or it is not known."""

    key: bytes
    ino: int
    before: Value | None
    now: Value | None


class Held:
    """What is held in one volume."""

    def __init__(self, fs: FileSystem, brake: Brake, losses: Losses) -> None:
        self._fs = fs
        self._brake = brake
        self._losses = losses

    def deletions(self, tx: Transaction) -> list[Deletion]:
        """What waits, for a person or a look at samples, oldest first. That of which nothing is held any more
        is over."""
        self._fs.flush(tx)
        return tx.held.waiting()

    def compared(self, tx: Transaction, deletion: Deletion) -> list[Compared]:
        """The registers that are held of a deletion, by what they are about, in the order of their keys."""
        self._fs.flush(tx)
        held = self._fs.changes.held
        found = [self._compare(tx, one.key) for one in tx.held.registers(deletion.number) if one.key in held]
        return [one for one in found if one is not None]

    def _compare(self, tx: Transaction, key: bytes) -> Compared | None:
        inode = shown_inode(tx, self._fs, key[NODE])
        if inode is None:
            return None
        shown = before = winner(tx.registers.values(content_key(inode.id)))
        if key[0] == CONTENT:
            before = version_stamped(tx, key, inode.content_stamp)
            return Compared(key, inode.ino, before, shown)
        name = name_of_slot(tx, inode.ino, slot_of(key)) if key[0] == PLACE else None
        other = None if name is None else in_its_place(tx, *name) or self._losses.beside(tx, *name)
        now = None if other is None else winner(tx.registers.values(content_key(other)))
        return Compared(key, inode.ino, before, now)

    def confirm(self, tx: Transaction, deletion: Deletion) -> None:
        """What is suspected waits for a person."""
        tx.held.confirm(deletion)

    def let_through(self, tx: Transaction, deletion: Deletion, keys: Collection[bytes]) -> set[bytes]:
        """Let go of these registers of what was suspected, as samples have shown that nothing is lost.
        Returns the nodes that the view has to show again."""
        for key in keys:
            self._fs.changes.drop(key)
        self._fs.flush(tx)
        self._brake.forget(deletion.device, deletion.cause)
        return {key[NODE] for key in keys}

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
        self._brake.forget(deletion.device, Cause.REMOVED)
        self._brake.forget(deletion.device, Cause.OVERWRITTEN)
        if not wanted:
            return [], {key[NODE] for key in held}
        lost: list[Write] = [(key, former) for key, former in back if self._is_gone(tx, key, deletion.device)]
        lost += [write for one in held for write in self._named_again(tx, one, None, deletion)]
        lost += [write for one in tuple(lost) for write in self._named_again(tx, *one, deletion)]
        return lost, {key[NODE] for key, _ in lost}

    def _named_again(
        self, tx: Transaction, key: bytes, former: bytes | None, deletion: Deletion
    ) -> Iterator[Write]:
        """What gives a file that is brought back the name that it had: the device may have made another file
        in its place, or have given it another name as it overwrote it. A file that was there before and was
        put in its place stays, as a conflict copy. *former*: what the register says again, unless the view
        holds on to that."""
        ino = unmerged_ino(tx, key[NODE])
        unsigned = self._fs.changes.unsigned
        if key[0] == PLACE:
            name = _name(former) if former is not None else ino and name_of_slot(tx, ino, slot_of(key))
            other = in_its_place(tx, *name) if name else None
            if name and other is not None and other != key[NODE]:
                place, content = place_key(other, 0), content_key(other)
                if unsigned.keys().isdisjoint((place, content)) and all(
                    self._is_made_by_it(tx, one, deletion) for one in (place, content)
                ):
                    yield place, Place(*name).left().encode()
        elif key[0] == CONTENT and place_key(key[NODE], 0) not in unsigned:
            place = place_key(key[NODE], 0)
            before = self._place_before(tx, place, deletion)
            name = _name(before)
            if name is not None and in_its_place(tx, *name) is None:
                yield place, before

    def _place_before(self, tx: Transaction, key: bytes, deletion: Deletion) -> bytes | None:
        """What a place said before the device gave the file another name, about when it overwrote it; None
        when it did not."""
        if not self._is_all_by(tx, key, deletion.device):
            return None
        for one in sorted(intervals_of(tx, key), key=lambda one: one.since, reverse=True):
            if not self._is_part(tx, one, deletion):
                return None if one.until is None else one.value
        return None

    def _is_made_by_it(self, tx: Transaction, key: bytes, deletion: Deletion) -> bool:
        """Whether all that a register has ever said is part of what the device did about then."""
        found = intervals_of(tx, key)
        return bool(found) and all(self._is_part(tx, one, deletion) for one in found)

    def _is_part(self, tx: Transaction, one: Interval, deletion: Deletion) -> bool:
        signed = tx.updates.signed_by(one.stamp.branch, one.stamp.clock)
        return (
            signed is not None and signed[0] == deletion.device and one.since >= deletion.time_ns - WINDOW_NS
        )

    def _is_all_by(self, tx: Transaction, key: bytes, device: bytes) -> bool:
        """Whether all values of a register are from the device."""
        signed = [tx.updates.signed_by(one.stamp.branch, one.stamp.clock) for one in tx.registers.values(key)]
        return bool(signed) and all(one is not None and one[0] == device for one in signed)

    def _is_gone(self, tx: Transaction, key: bytes, device: bytes) -> bool:
        """Whether a register still has the value that the device wrote."""
        return is_removed(tx.registers.values(key)) if key[0] == PLACE else self._is_all_by(tx, key, device)


def _name(place: bytes | None) -> Name | None:
    """The folder and the name in the value of a place; None of one that is removed, or none."""
    try:
        found = None if place is None else Place.decode(place)
    except DecodeError:
        return None
    return None if found is None or found.removed else Name(found.parent, found.name)
