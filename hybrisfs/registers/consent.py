"""The rules of unanimous consent, as functions of what the registers hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hybrisfs.registers.ballots import Answer, Ballot, Proposal, Stage, Stray
from sync.codec import DecodeError

__all__ = ["Book", "Listed"]

_SILENT = Answer(Stage.NONE)


@dataclass(frozen=True, slots=True)
class Listed:
    """A proposal that stands."""

    id: bytes
    proposer: bytes
    packs: tuple[bytes, ...]
    orphans: tuple[bytes, ...] = ()
    strays: tuple[Stray, ...] = ()

    def without(self, refused: Collection[int]) -> Listed:
        """What is left when these indices are refused."""
        orphans = len(self.packs)
        strays = orphans + len(self.orphans)
        return Listed(
            self.id,
            self.proposer,
            tuple(one for index, one in enumerate(self.packs) if index not in refused),
            tuple(one for index, one in enumerate(self.orphans, orphans) if index not in refused),
            tuple(one for index, one in enumerate(self.strays, strays) if index not in refused),
        )


class Book:
    """Proposals and ballots of the members of a volume, each register with all its concurrent values."""

    def __init__(
        self,
        members: Collection[bytes],
        proposals: Mapping[bytes, Iterable[bytes | None]],
        ballots: Mapping[bytes, Iterable[bytes | None]],
        readers: Collection[bytes] = (),
    ) -> None:
        """*proposals* and *ballots*: values by device. A device that is no member any more, or one of the
        *readers*, may have begun to delete what it had proposed, but no member answers that."""
        self.members = members
        self.proposed: list[Listed] = []
        for device in sorted(proposals):
            for value in proposals[device]:
                try:
                    proposal = Proposal.decode(value or b"")
                except DecodeError:
                    continue  # no correct device has written it
                named = proposal.packs, proposal.orphans, proposal.strays
                if any(named):
                    self.proposed.append(Listed(proposal.id_for(device), device, *named))
        self.lists = [one for one in self.proposed if one.proposer in members and one.proposer not in readers]
        self._ballots = {device: [_decoded(value) for value in ballots.get(device, ())] for device in members}

    def of(self, device: bytes) -> list[Listed]:
        """What a device proposes; several lists only when it has forked."""
        return [one for one in self.lists if one.proposer == device]

    def answer(self, device: bytes, proposal: bytes) -> Answer:
        """What a member says: a forked one only what all its branches say, and all that one refuses."""
        said: Sequence[Answer] = [
            ballot.answers.get(proposal, _SILENT) for ballot in self._ballots.get(device, [])
        ]
        stage = min((one.stage for one in said), default=Stage.NONE)
        return Answer(stage, tuple(sorted({index for one in said for index in one.refused})))

    def lacking(self, proposal: bytes, stage: Stage) -> list[bytes]:
        """The members that have not come to *stage*."""
        return [one for one in self.members if self.answer(one, proposal).stage < stage]

    def awaited(self, proposal: bytes) -> list[bytes]:
        """The members whose turn it is: no member can agree before all have promised."""
        return self.lacking(proposal, Stage.PROMISED) or self.lacking(proposal, Stage.AGREED)

    def due(self, device: bytes, proposal: bytes) -> Stage:
        """The stage that a member which needs nothing of the proposal may come to now."""
        stage = self.answer(device, proposal).stage
        if stage is Stage.NONE:
            return Stage.PROMISED
        return stage if self.lacking(proposal, Stage.PROMISED) else Stage.AGREED

    def agreed(self, listed: Listed) -> Listed | None:
        """What may be deleted: all that no member refuses; None while some member has not agreed."""
        if self.lacking(listed.id, Stage.AGREED):
            return None
        refused = {index for one in self.members for index in self.answer(one, listed.id).refused}
        return listed.without(refused)


def _decoded(value: bytes | None) -> Ballot:
    try:
        return Ballot.decode(value or b"")
    except DecodeError:
        return Ballot({})
