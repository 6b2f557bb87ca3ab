"""Signing an own update and putting its writes into the registers, as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable

from hybrisfs.errors import HybrisError
from hybrisfs.filesystem.registers import Place
from hybrisfs.merge.authority import may_write
from hybrisfs.merge.members import MemberTable
from hybrisfs.merge.minutes import End
from hybrisfs.merge.registers import Registers, is_kept
from hybrisfs.merge.roles import Role
from hybrisfs.merge.rules import Stamp, standing_place
from hybrisfs.store.updates import UpdateLog
from sync import Write

__all__ = ["Signer", "only_reads"]


def only_reads() -> HybrisError:
    """The error of a device that may not do what was asked of it."""
    return HybrisError(
        "this device only reads the volume",
        "a full member has said so",
        "On one of those, hybrisfs device role NAME full lets it write.",
    )


class Signer:
    """Signs transactions of this device; called with the volume's lock held."""

    def __init__(
        self,
        updates: UpdateLog,
        registers: Registers,
        members: MemberTable,
        signed: Callable[[], None] = lambda: None,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        """*signed* is told that there is an own update more, with the lock held. *waits*: whether own updates
        that this device has forgotten are still to come."""
        self._waits = waits
        self._signed = signed
        self._updates = updates
        self._registers = registers
        self._members = members

    def sign(self, writes: Iterable[Write], chunk_high: int, directories: Container[bytes] = ()) -> Stamp:
        """Sign *writes*, which name no chunk above *chunk_high*, as one transaction; its stamp.

        A place register without a value means that its node is gone. *directories*: the keys of the places
        of directories. Raises HybrisError as `ensure_allowed` does, and when this device only reads and may
        not write these.
        """
        self.ensure_allowed()
        writes = [
            write for key, value in writes if (write := self._completed(key, value, key in directories))
        ]
        role, device = self.role, self._updates.device
        if not all(may_write(role, device, *write) for write in writes):
            raise only_reads()
        update = self._updates.sign(writes, time.time_ns(), chunk_high)
        tip = self._updates.own_tip()
        assert tip is not None
        stamp = Stamp(update.header.clock, tip.branch)
        self._registers.write_own(stamp, [write for write in writes if is_kept(write[0])])
        self._signed()
        return stamp

    def ensure_allowed(self) -> None:
        """Raises HybrisError when this device was removed from the volume, or waits for its own log."""
        if self._registers.roles.are_awaited(self._updates.device):
            raise only_reads()
        if self._waits():
            raise HybrisError(
                "this cannot be done yet",
                "the volume was rebuilt, and its log is not back from the clouds",
                "hybrisfs status tells when it is there.",
            )
        if not self.may_sign:
            raise HybrisError(
                "this device was removed from the volume", "nothing that it writes is accepted by others"
            )

    @property
    def may_sign(self) -> bool:
        """False once this device was removed from the volume: what it signs is worth nothing to others. And
        while its own log is to come back: what it signed would make it fork. And while it knows that it is a
        reader, and its log does not tell: nobody would accept it."""
        device = self._updates.device
        awaited = self._registers.roles.are_awaited(device)
        return not self._waits() and device in self._updates.members and not awaited

    @property
    def role(self) -> Role:
        """What this device may do."""
        return self.role_of(self._updates.device)

    def role_of(self, device: bytes) -> Role:
        """What a device may do, as far as is known here."""
        roles, updates = self._registers.roles, self._updates
        if device == updates.device and roles.are_awaited(device):
            return Role.READER
        return roles.role(device, updates.state.vector, updates.vector_of)

    @property
    def may_change(self) -> bool:
        """Whether what it signs may be anything that members sign, as it does not only read."""
        return self.may_sign and self.role is Role.FULL

    def require_writer(self) -> None:
        """Raises HybrisError when this device only reads."""
        if self.role is not Role.FULL:
            raise only_reads()

    def may_end(self, packs: Collection[bytes]) -> bool:
        """Whether the end of these packs counts if this device signs it now."""
        updates, minutes = self._updates, self._registers.minutes
        ends = minutes.judge(updates.device, updates.state.vector, packs, updates.vector_of)
        return all(end is End.AGREED for end in ends.values())

    def number_of(self, stamp: Stamp) -> int:
        """The stamp as the view stores it."""
        return self._registers.number_of(stamp)

    def _completed(self, key: bytes, value: bytes | None, is_directory: bool) -> Write | None:
        """The write with all that a place must tell of the place before; None for the removal of what
        nobody has heard of."""
        if key[:1] != b"p" or (value is not None and not is_directory):
            return key, value
        before = standing_place(self._registers.values(key))
        if value is None:
            if before is None:
                return None
            return key, before[1].left().encode()
        place = Place.decode(value)
        if before is None or before[1].parent == place.parent:
            return key, value
        return key, place._replace(former=before[1].parent).encode()
