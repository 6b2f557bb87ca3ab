"""What one device knows of proposals and packs, and what it signs about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hybrisfs.gc.protocol import Worth
from hybrisfs.kinds import ANSWERS, ID, PROPOSAL, Kind
from hybrisfs.members.roles import Role
from hybrisfs.merge.signing import Signer
from hybrisfs.registers.proposals import Answer, Answers, Book, Proposal, Stray, answers_key, proposal_key
from hybrisfs.registers.tree import pack_key
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.stages import Signals
from hybrisfs.state.state import Transaction

__all__ = ["Assembly"]


class Assembly:
    """Reads and signs for this device: what its `Consent` knows. Made for one transaction."""

    def __init__(self, tx: Transaction, signer: Signer, signals: Signals) -> None:
        self.device = tx.updates.device
        self._tx = tx
        self._signer = signer
        self._signals = signals

    @property
    def may_sign(self) -> bool:
        """Whether this device still belongs to the volume."""
        return self._signer.may_sign(self._tx)

    @property
    def may_propose(self) -> bool:
        """Whether it does not only read, besides."""
        return self._signer.may_change(self._tx)

    @property
    def is_lowest(self) -> bool:
        """Whether this is the full member with the lowest id, which does the work that one device does for
        all."""
        readers = self._readers()
        members = (one.device for one in self._tx.members.all() if one.device not in readers)
        return self.device == min(members, default=self.device)

    def _readers(self) -> set[bytes]:
        """The readers, whose proposals could never come to an end."""
        return {
            one
            for one in self._tx.registers.roles.devices()
            if self._signer.role_of(self._tx, one) is not Role.FULL
        }

    def book(self) -> Book:
        """The present proposals and answers, and the devices that have to consent, suspended ones
        included."""
        members = [one.device for one in self._tx.members.asked()]
        return Book(members, self._values(PROPOSAL), self._values(ANSWERS), self._readers())

    def awaited(self) -> dict[bytes, list[Stamp]]:
        """The other members that proposals wait for, each with the times at which these were signed."""
        book = self.book()
        found: dict[bytes, list[Stamp]] = {}
        for key, values in self._tx.registers.with_prefix(PROPOSAL.prefix).items():
            for one in values:
                for listed in Book((key[ID],), {key[ID]: [one.value]}, {}).lists:
                    for device in book.awaited(listed.id) if key[ID] in book.members else ():
                        if device != self.device:
                            found.setdefault(device, []).append(one.stamp)
        return found

    def _values(self, kind: Kind) -> dict[bytes, list[bytes | None]]:
        found: Mapping[bytes, list[Value]] = self._tx.registers.with_prefix(kind.prefix)
        return {key[ID]: [one.value for one in values] for key, values in found.items()}

    def condemned(self) -> set[bytes]:
        """The packs on which nothing new relies."""
        packs = map(self._tx.packs.numbered, self._tx.chunks.condemned)
        return {pack.id for pack in packs if pack is not None}

    def unread_pages(self) -> Sequence[bytes]:
        """Lists of chunks that were named since and have not been read yet."""
        return self._tx.chunks.condemned.unread_pages()

    def worth(self, pack: bytes) -> Worth:
        """What a pack is to this device."""
        found, condemned = self._tx.packs.find(pack), self._tx.chunks.condemned
        if found is None or not found.n:
            return Worth.ENDED if found is not None and found.has_ended else Worth.UNNAMED
        if found.number not in condemned:
            return Worth.USED
        return Worth.WANTED if condemned.is_wanted(found.number) else Worth.CONDEMNED

    def is_placed(self, stray: Stray) -> bool:
        """Whether the register of its pack places that share just there."""
        found = self._tx.packs.find(stray.pack)
        return found is not None and found.is_at(stray.share, stray.cloud)

    def propose(
        self,
        serial: int,
        packs: Iterable[bytes],
        orphans: Iterable[bytes] = (),
        strays: Iterable[Stray] = (),
    ) -> None:
        """Propose to delete these, in place of earlier proposals."""
        proposal = Proposal(serial, tuple(packs), tuple(orphans), tuple(strays))
        self._sign([(proposal_key(self.device), proposal.encode())])

    def answer(self, answers: Mapping[bytes, Answer]) -> None:
        """Answer these proposals, and no others."""
        self._sign([(answers_key(self.device), Answers(answers).encode())])

    def may_end(self, packs: Collection[bytes]) -> bool:
        """Whether the end of these packs counts for all others, too, if it is signed now."""
        return self.may_propose and self._signer.may_end(self._tx, packs)

    def end(self, packs: Iterable[bytes]) -> Stamp:
        """Sign that these packs are no more."""
        return self._sign([(pack_key(pack), None) for pack in packs])

    def _sign(self, writes: list[tuple[bytes, bytes | None]]) -> Stamp:
        stamp = self._signer.sign(self._tx, writes, 0)
        self._signals.chunks_made()
        return stamp
