"""What members sign about packs that may be deleted.

========  ==========================  ===============================================================
register  key                         value
========  ==========================  ===============================================================
proposal  ``d`` device id (16)        version u8 = 2, serial (varint), count (varint <= 256), each
                                      pack id (32); count, each id (32) of a pack that no register names;
                                      count, each a share that registers place elsewhere: pack id (32),
                                      index u8, cloud u8. At most 256 together
answers   ``v`` device id (16)        version u8 = 1, count (varint <= 4096), each proposal id (16),
                                      stage u8 (1 promised, 2 agreed), count (varint <= 256), each
                                      index of what the proposal names (packs, then orphans, then
                                      strays) that is refused (varint), in ascending order; proposals
                                      in ascending order of their ids
========  ==========================  ===============================================================

A device has one proposal at a time; one that names nothing means that there is none. The id of a proposal is
the BLAKE3 hash of its key and value, derived with the context below: an answer is about exactly these packs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.kinds import ANSWERS, PROPOSAL
from sync.codec import DecodeError, Reader, Writer, digest

__all__ = [
    "MAX_PACKS",
    "Answer",
    "Answers",
    "Book",
    "Listed",
    "Proposal",
    "Stage",
    "Stray",
    "answers_key",
    "proposal_key",
]

MAX_PACKS: Final = 256
_MAX_ANSWERS: Final = 4096
_ID_SIZE: Final = 16
_VERSION: Final = 1
_PROPOSAL_VERSION: Final = 2  # 1 named only packs that registers name
_CONTEXT: Final = "hybrisfs.gc 2026-11 proposal"


def proposal_key(device: bytes) -> bytes:
    return PROPOSAL.prefix + device


def answers_key(device: bytes) -> bytes:
    return ANSWERS.prefix + device


class Stage(IntEnum):
    """How far a member has gone with a proposal."""

    NONE = 0
    PROMISED = 1
    AGREED = 2


class Stray(NamedTuple):
    """A share that a cloud has although the registers place it on another one."""

    pack: bytes
    share: int
    cloud: int


class Proposal(Struct, frozen=True):
    """What a device proposes to delete: packs, packs that no register names (orphans), and single shares.

    *serial* tells its proposals apart.
    """

    serial: int
    packs: tuple[bytes, ...]
    orphans: tuple[bytes, ...] = ()
    strays: tuple[Stray, ...] = ()

    def encode(self) -> bytes:
        out = Writer().u8(_PROPOSAL_VERSION).varint(self.serial)
        for ids in (self.packs, self.orphans):
            out.varint(len(ids)).raw(b"".join(ids))
        out.varint(len(self.strays))
        for stray in self.strays:
            out.raw(stray.pack).u8(stray.share).u8(stray.cloud)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> Proposal:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _PROPOSAL_VERSION:
            raise DecodeError("a proposal of another version")
        serial = reader.varint()
        packs = tuple(reader.raw(32) for _ in range(reader.varint(MAX_PACKS)))
        orphans = tuple(reader.raw(32) for _ in range(reader.varint(MAX_PACKS - len(packs))))
        most = MAX_PACKS - len(packs) - len(orphans)
        strays = tuple(Stray(reader.raw(32), reader.u8(), reader.u8()) for _ in range(reader.varint(most)))
        reader.end()
        ids = packs + orphans
        if len(set(ids)) != len(ids) or len(set(strays)) != len(strays):
            raise DecodeError("a proposal that names something twice")
        return Proposal(serial, packs, orphans, strays)

    def id_for(self, device: bytes) -> bytes:
        """What answers call this proposal of *device*."""
        return digest(_CONTEXT, proposal_key(device) + self.encode(), _ID_SIZE)


class Answer(Struct, frozen=True):
    """What a member says to a proposal: *refused* are indices of packs that it needs."""

    stage: Stage
    refused: tuple[int, ...] = ()


class Answers(Struct, frozen=True):
    """A member's answers by the ids of proposals."""

    answers: Mapping[bytes, Answer]

    def encode(self) -> bytes:
        out = Writer().u8(_VERSION).varint(len(self.answers))
        for proposal, answer in sorted(self.answers.items()):
            out.raw(proposal).u8(answer.stage).varint(len(answer.refused))
            for index in answer.refused:
                out.varint(index)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> Answers:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("answers of another version")
        answers: dict[bytes, Answer] = {}
        before = b""
        for _ in range(reader.varint(_MAX_ANSWERS)):
            proposal, stage = reader.raw(_ID_SIZE), reader.u8()
            refused = tuple(reader.varint(MAX_PACKS - 1) for _ in range(reader.varint(MAX_PACKS)))
            if stage not in (Stage.PROMISED, Stage.AGREED):
                raise DecodeError(f"an answer of stage {stage}")
            if any(one >= other for one, other in pairwise(refused)):
                raise DecodeError("refusals out of order")
            if answers and proposal <= before:
                raise DecodeError("answers out of order")
            answers[proposal] = Answer(Stage(stage), refused)
            before = proposal
        reader.end()
        return Answers(answers)


# -- the rules of unanimous consent, as functions of what the registers hold ----------------------------


_SILENT = Answer(Stage.NONE)


class Listed(Struct, frozen=True):
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
    """Proposals and answers of the members of a volume, each register with all its concurrent values."""

    def __init__(
        self,
        members: Collection[bytes],
        proposals: Mapping[bytes, Iterable[bytes | None]],
        answers: Mapping[bytes, Iterable[bytes | None]],
        readers: Collection[bytes] = (),
    ) -> None:
        """*proposals* and *answers*: values by device. A device that is no longer a member, or one of the
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
        self._answers = {device: [_decoded(value) for value in answers.get(device, ())] for device in members}

    def of(self, device: bytes) -> list[Listed]:
        """What a device proposes; several lists only when it has forked."""
        return [one for one in self.lists if one.proposer == device]

    def answer(self, device: bytes, proposal: bytes) -> Answer:
        """What a member says: a forked one only what all its branches say, and all that one refuses."""
        said: Sequence[Answer] = [one.answers.get(proposal, _SILENT) for one in self._answers.get(device, [])]
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


def _decoded(value: bytes | None) -> Answers:
    try:
        return Answers.decode(value or b"")
    except DecodeError:
        return Answers({})
