"""Signing an own update and putting its writes into the registers, as one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kinds import PLACE
from hybrisfs.log import is_kept
from hybrisfs.members.minutes import End
from hybrisfs.members.removal import Stance, encode_vote, vote_key
from hybrisfs.members.roles import Rights, Role
from hybrisfs.merge.authority import may_write
from hybrisfs.merge.rules import standing_place
from hybrisfs.registers.tree import Place
from hybrisfs.registers.values import Stamp
from hybrisfs.state.state import Transaction
from hybrisfs.topic import Topic
from sync import Write

__all__ = ["Signer", "explaining_refusal", "is_limited", "only_reads"]


def only_reads() -> HybrisError:
    """The error of a reader that may not do this."""
    return HybrisError(
        "this machine only reads the volume",
        "a full member has said so",
        "On one of those, hybrisfs device role NAME full lets it write.",
    )


def is_limited() -> HybrisError:
    """The error of a contributor that may not do this."""
    return HybrisError(
        "this machine may only change what is in some folders of the volume",
        "a full member has said so",
        "hybrisfs device list names the folders. On a full member, hybrisfs device role NAME full lets it do "
        "all.",
    )


@contextmanager
def explaining_refusal(*, read_only: bool) -> Iterator[None]:
    """Within it something is changed that programs are refused with EACCES; the error says why. *read_only*:
    whether this device may change nothing at all. Raises HybrisError."""
    if read_only:
        raise only_reads()
    try:
        yield
    except OSError as error:
        if error.errno == errno.EACCES:
            raise is_limited() from None
        raise


class LostUpdates(Protocol):
    """Own updates that this device has lost."""

    @property
    def under_way(self) -> bool:
        """Whether they are still to come back."""


class Signer:
    """Signs transactions of this device."""

    def __init__(self, environment: Environment, lost: LostUpdates) -> None:
        self._lost = lost
        self.signed = Topic[[]]()
        """There is an own update more; told within the transaction."""
        self._time_ns = environment.time_ns

    def sign(
        self, tx: Transaction, writes: Iterable[Write], chunk_high: int, directories: Container[bytes] = ()
    ) -> Stamp:
        """Sign *writes*, which name no chunk above *chunk_high*, as one transaction; its stamp.

        A place register without a value means that its node is gone. *directories*: the keys of the places
        of directories. Raises HybrisError as `ensure_allowed` does, and when this device may not write these.
        """
        self.ensure_allowed(tx)
        return self._sign(
            tx,
            [
                write
                for key, value in writes
                if (write := self._completed(tx, key, value, key in directories))
            ],
            chunk_high,
        )

    def plead(self, tx: Transaction) -> Stamp:
        """Sign that this device, which is suspended, should be kept. The plea has no effect by itself. But it
        depends on the accusation, which perhaps no other device has received: devices that count this one as
        a member accept both, and can veto. Raises HybrisError as `sign` does, but for the suspension."""
        self._ensure_chain(tx)
        device = tx.updates.device
        return self._sign(tx, [(vote_key(device, device), encode_vote(Stance.KEEP))], 0)

    def _sign(self, tx: Transaction, writes: list[Write], chunk_high: int) -> Stamp:
        rights = self.rights(tx)
        if not all(self._may_write(tx, rights, *write) for write in writes):
            raise _refusal(rights.role)
        update = tx.updates.sign(writes, self._time_ns(), chunk_high)
        tip = tx.updates.own_tip()
        assert tip is not None
        stamp = Stamp(update.header.clock, tip.branch)
        tx.registers.write_own(stamp, [write for write in writes if is_kept(write[0])])
        self.signed()
        return stamp

    def ensure_allowed(self, tx: Transaction) -> None:
        """Raises HybrisError when this device was removed from the volume, or waits for its own log."""
        self._ensure_chain(tx)
        if not self.may_sign(tx):
            raise HybrisError(
                "this machine was removed from the volume", "nothing that it writes is accepted by others"
            )

    def _ensure_chain(self, tx: Transaction) -> None:
        """Raises HybrisError when an update signed now would not follow the last one of this device."""
        if tx.registers.roles.are_awaited(tx.updates.device):
            raise only_reads()
        if self._lost.under_way:
            raise HybrisError(
                "this cannot be done yet",
                "the volume was rebuilt, and its log is not back from the clouds",
                "hybrisfs status tells when it is there.",
            )

    def may_sign(self, tx: Transaction) -> bool:
        """False in three cases. This device was removed, so others ignore its updates. Its own log is still
        to come back, so an update would make it fork. It knows that it is a reader and its log does not say
        so yet, so no device would accept the update."""
        return self.may_plead(tx) and tx.updates.device in tx.updates.members

    def may_plead(self, tx: Transaction) -> bool:
        """Whether it may sign that it should be kept, if it is suspended."""
        return not self._lost.under_way and not tx.registers.roles.are_awaited(tx.updates.device)

    def role(self, tx: Transaction) -> Role:
        """What this device may do."""
        return self.role_of(tx, tx.updates.device)

    def role_of(self, tx: Transaction, device: bytes) -> Role:
        """What a device may do, as far as is known here."""
        return self.rights_of(tx, device).role

    def rights(self, tx: Transaction) -> Rights:
        """The role of this device, and in which areas."""
        return self.rights_of(tx, tx.updates.device)

    def rights_of(self, tx: Transaction, device: bytes) -> Rights:
        """The role of a device, and in which areas, as far as is known here."""
        roles, updates = tx.registers.roles, tx.updates
        if device == updates.device and roles.are_awaited(device):
            return Rights(Role.READER)
        return roles.rights(device, updates.state.vector, updates.vector_of)

    def pending_roles(self, tx: Transaction, device: bytes) -> list[tuple[bytes, Rights]]:
        """See `Roles.pending`."""
        return tx.registers.roles.pending(device, tx.updates.vector_of)

    def may_change(self, tx: Transaction) -> bool:
        """Whether it may sign all that members may sign."""
        return self.may_sign(tx) and self.role(tx) is Role.FULL

    def may_contribute(self, tx: Transaction) -> bool:
        """Whether it may sign what programs change, in some folders at least."""
        return self.may_sign(tx) and self.role(tx) is not Role.READER

    def counting(self, tx: Transaction) -> Callable[[bytes, bytes | None], bool]:
        """A function that says whether a write (as `sign` takes it) that breaks no other rule would count
        now."""
        rights = self.rights(tx)

        def counts(key: bytes, value: bytes | None) -> bool:
            write = self._completed(tx, key, value, True)  # only directories have been moved from one
            return write is None or self._may_write(tx, rights, *write)

        return counts

    def _may_write(self, tx: Transaction, rights: Rights, key: bytes, value: bytes | None) -> bool:
        grounds = tx.registers.roles.grounds(rights, None)
        return may_write(rights.role, tx.updates.device, key, value, grounds)

    def require_writer(self, tx: Transaction) -> None:
        """Raises HybrisError unless this device is a full member."""
        if self.role(tx) is not Role.FULL:
            raise _refusal(self.role(tx))

    def may_end(self, tx: Transaction, packs: Collection[bytes]) -> bool:
        """Whether the end of these packs counts if this device signs it now."""
        updates, minutes = tx.updates, tx.registers.minutes
        ends = minutes.judge(updates.device, updates.state.vector, packs, updates.vector_of)
        return all(end is End.AGREED for end in ends.values())

    def number_of(self, tx: Transaction, stamp: Stamp) -> int:
        """The stamp as the view stores it."""
        return tx.registers.number_of(stamp)

    def _completed(
        self, tx: Transaction, key: bytes, value: bytes | None, is_directory: bool
    ) -> Write | None:
        """The write, completed by what a place must say about the place before; None for the removal of a
        place that no update has named."""
        if key[0] != PLACE or (value is not None and not is_directory):
            return key, value
        before = standing_place(tx.registers.values(key))
        if value is None:
            if before is None:
                return None
            return key, before[1].left().encode()
        place = Place.decode(value)
        if before is None or before[1].parent == place.parent:
            return key, value
        return key, place._replace(former=before[1].parent).encode()


def _refusal(role: Role) -> HybrisError:
    return is_limited() if role is Role.CONTRIBUTOR else only_reads()
