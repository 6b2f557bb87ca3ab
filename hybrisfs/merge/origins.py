"""Of which devices the updates in the log are, and what their writers had seen (`rules.Origins`)."""

from __future__ import annotations

from hybrisfs.members.roles import Role
from hybrisfs.merge.names import Author
from hybrisfs.registers.values import Stamp
from hybrisfs.state.state import Transaction

__all__ = ["LogOrigins"]


class LogOrigins:
    """The `Origins` by the log of one volume; made for one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._updates = tx.updates
        self._members = tx.members
        self._roles = tx.registers.roles

    def depends(self, later: Stamp, earlier: Stamp) -> bool:
        vector = self._updates.vector_of(later.branch, later.clock)
        return vector is not None and vector[earlier.branch] >= earlier.clock

    def author(self, stamp: Stamp) -> Author:
        signed = self._updates.signed_by(stamp.branch, stamp.clock)
        if signed is None:
            return self.myself()
        device, time_ns = signed
        return Author(self._members.name_of(device), time_ns)

    def myself(self) -> Author:
        """For the conflict name of what a program here has just written."""
        return Author(self._members.name_of(self._updates.device), self._updates.environment.time_ns())

    def signer(self, stamp: Stamp) -> bytes | None:
        """The device that signed an update."""
        signed = self._updates.signed_by(stamp.branch, stamp.clock)
        return None if signed is None else signed[0]

    def is_contributed(self, stamp: Stamp) -> bool:
        """Whether the signer of an update was less than a full member then, as far as is known here."""
        signer = self.signer(stamp) if self._roles else None
        if signer is None:
            return False
        seen = self._updates.vector_of(stamp.branch, stamp.clock)
        return self._roles.role(signer, seen, self._updates.vector_of) is not Role.FULL
