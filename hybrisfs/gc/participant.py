"""One device in garbage collection (`hybrisfs.gc.protocol`): what it knows and signs, and how it acts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from hybrisfs.bounded import in_groups
from hybrisfs.dispersal.erasure import MAX_FRAGMENTS
from hybrisfs.gc.disposal import Orphans
from hybrisfs.gc.find import Pages, References
from hybrisfs.gc.protocol import Consent, Delete, End, Examine, Propose, ReadPages, Release, Reply, Worth
from hybrisfs.gc.rewrite import NeededOrphans
from hybrisfs.kinds import ANSWERS, ID, PROPOSAL, Kind
from hybrisfs.members.roles import Role
from hybrisfs.merge.signing import Signer
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.proposals import (
    Answer,
    Answers,
    Book,
    Listed,
    Proposal,
    Stray,
    answers_key,
    proposal_key,
)
from hybrisfs.registers.tree import pack_key
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.stages import Signals
from hybrisfs.state.packs import count_of_pack, sealed_bytes
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Assembly", "CloudNumbers", "Participant"]


class Assembly:
    """Reads and signs for this device: the `Knowledge` of its `Consent`. Made for one transaction."""

    def __init__(self, tx: Transaction, signer: Signer, signals: Signals) -> None:
        self.device = tx.updates.device
        self._tx = tx
        self._signer = signer
        self._signals = signals

    @property
    def may_sign(self) -> bool:
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
        packs = map(self._tx.packs.numbered, self._tx.chunks.condemned)
        return {pack.id for pack in packs if pack is not None}

    def unread_pages(self) -> Sequence[bytes]:
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
        return self.may_propose and self._signer.may_end(self._tx, packs)

    def end(self, packs: Iterable[bytes]) -> Stamp:
        """Sign that these packs are no more."""
        return self._sign([(pack_key(pack), None) for pack in packs])

    def _sign(self, writes: list[tuple[bytes, bytes | None]]) -> Stamp:
        stamp = self._signer.sign(self._tx, writes, 0)
        self._signals.chunks_made()
        return stamp


_BATCH_CHUNKS: Final = 4000  # that one transaction takes from the database, while programs wait


class CloudNumbers(Protocol):
    """What is asked of `hybrisfs.dispersal.engine.Engine`."""

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of all clouds: a share may have come to one that no placement names."""


class Participant:
    """Proposes, answers all proposals, own ones included, and ends what all have agreed on.

    One caller at a time, without the volume's locks.
    """

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        signals: Signals,
        committer: Committer,
        fetcher: Fetcher,
        orphans: Orphans,
        needed: NeededOrphans,
        engine: CloudNumbers,
    ) -> None:
        self._fs = fs
        self._time_ns = fs.environment.time_ns
        self._signer = signer
        self._signals = signals
        self._committer = committer
        self._fetcher = fetcher
        self._pages = Pages(fs, fetcher)
        self._orphans = orphans
        self._needed = needed
        self._engine = engine
        with fs.state.transaction() as tx:
            own = tx.updates.device
        self._consent = Consent(own)

    def assembly(self, tx: Transaction) -> Assembly:
        """What this device knows and signs, within one transaction."""
        return Assembly(tx, self._signer, self._signals)

    def propose(
        self, packs: Sequence[int], orphans: Sequence[bytes] = (), strays: Sequence[Stray] = ()
    ) -> int:
        """Propose to delete packs (by number), orphans (by id) and strays. Returns how many were proposed:
        none unless this device may propose and no earlier proposal stands, except one of strays.
        """
        with self._fs.state.log_transaction() as tx:
            known = [tx.packs.numbered(number) for number in packs]
            ids = [one.id for one in known if one is not None]
            assembly = self.assembly(tx)
            waiting = sum(len(one.strays) for one in assembly.book().of(assembly.device))
            proposal = self._consent.proposal(assembly, ids, orphans, strays)
            if proposal is None:
                return 0
            self._propose(tx, proposal)
        return len(proposal.packs) + len(proposal.orphans) + len(proposal.strays) - waiting

    def step(self) -> bool:
        """One turn: up to an answer or a proposal, or as far as possible now. Returns whether anything was
        signed.

        Raises ChunkUnavailable and OSError when it is unknown now what is needed.
        """
        with self._fs.state.transaction() as tx:
            if not self.assembly(tx).book().proposed and not tx.chunks.condemned:
                return False
        self._consent.begin()
        has_signed = False
        while True:
            # A cut holds chunks that neither view nor registers name: its turn is before or after.
            with self._fs.state.log_transaction() as tx:
                action = self._consent.due(self.assembly(tx))
                match action:
                    case Release():
                        self._release(tx, action)
                    case Reply():
                        self.assembly(tx).answer(action.answers)
                        return True
                    case Propose():
                        self._propose(tx, action)
                        return True
            match action:
                case None:
                    return has_signed
                case Examine():
                    self._examine(action.lists)
                case ReadPages():
                    self._pages.look_through(action.pages)
                    self._consent.pages_read()
                case Delete():
                    self._consent.deleted(action.proposal, self._orphans.delete(action.strays))
                case End():
                    ended, is_all = self._end(action)
                    has_signed |= ended
                    if not is_all:
                        return has_signed

    def _propose(self, tx: Transaction, proposal: Propose) -> None:
        self.assembly(tx).propose(self._time_ns(), proposal.packs, proposal.orphans, proposal.strays)
        tx.deletion_candidates.put_off(proposal.put_off, self._time_ns())

    def _release(self, tx: Transaction, action: Release) -> None:
        packs, condemned = tx.packs, tx.chunks.condemned
        kept = {packs.number_of(pack) for pack in action.kept}
        condemned.release([number for number in condemned if number not in kept])

    def _examine(self, lists: Sequence[Listed]) -> None:
        """Condemn these packs, so that nothing new relies on them, and find out what is needed of them."""
        self._needed.look([pack for one in lists for pack in one.orphans])
        fs = self._fs
        with fs.state.log_transaction() as tx:
            known = [tx.packs.number_of(pack) for one in lists for pack in one.packs]
            numbers = [number for number in known if number is not None]
            tx.chunks.condemned.add(numbers)
            for number in numbers:
                tx.chunks.rely_on_spares(number)
        self._pages.list_files()
        self._committer.commit_now()
        with fs.state.snapshot() as snapshot:
            references = References(snapshot, self._pages)
            needed = {number: references.of(number) for number in numbers}
        # What is said to be in another pack as well is read there before this one may go.
        self._fetcher.prove([chunk for one in needed.values() for chunk in (*one.chunks, *one.claimed)])
        with fs.state.transaction() as tx:
            for number, one in needed.items():
                if number in tx.chunks.condemned and any(
                    tx.chunks.relies_on(chunk, number) for chunk in (*one.chunks, *one.claimed)
                ):
                    tx.chunks.condemned.want(number)
        self._consent.examined(lists)

    def _end(self, action: End) -> tuple[bool, bool]:
        """Sign the end of packs and orphans, and note what is to be deleted. Returns whether any was signed,
        and whether nothing has to wait."""
        has_signed = False
        for batch in (*in_groups(action.packs, self._chunks_in, _BATCH_CHUNKS), action.orphans):
            with self._fs.state.log_transaction() as tx:
                ending = self._consent.ending(self.assembly(tx), batch)
                if batch and not ending:
                    return has_signed, False
                if ending:
                    self._sign_end(tx, ending)
                    has_signed = True
        return has_signed, True

    def _chunks_in(self, pack: bytes) -> int:
        with self._fs.state.transaction() as tx:
            return count_of_pack(tx, pack)

    def _sign_end(self, tx: Transaction, ending: Iterable[bytes]) -> None:
        stamp = self.assembly(tx).end(ending)
        for pack in ending:
            self._dispose(tx, pack, stamp.clock)
            tx.chunks.end_pack(pack, stamp.clock, stamp.branch)

    def _dispose(self, tx: Transaction, pack: bytes, clock: int) -> None:
        """Have the shares of a pack deleted that ends with the own update at *clock*."""
        clouds, disposals = self._engine.numbers, tx.disposals
        found = tx.packs.find(pack)
        if found is None or not found.n:
            disposals.add(pack, MAX_FRAGMENTS, dict.fromkeys(clouds, 0), clock)
            return
        share = -(-sealed_bytes(tx, found.number) // found.k)
        sizes = {cloud: share if cloud in found.placement else 0 for cloud in {*clouds, *found.placement}}
        disposals.add(pack, found.n, sizes, clock)
