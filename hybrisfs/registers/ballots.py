"""What members sign about packs that may be discarded.

========  ==========================  ===============================================================
register  key                         value
========  ==========================  ===============================================================
proposal  ``d`` device id (16)        version u8 = 2, serial (varint), count (varint <= 256), each
                                      pack id (32); count, each id (32) of a pack that no register names;
                                      count, each a share that registers place elsewhere: pack id (32),
                                      index u8, cloud u8. At most 256 together
ballot    ``v`` device id (16)        version u8 = 1, count (varint <= 4096), each proposal id (16),
                                      stage u8 (1 promised, 2 agreed), count (varint <= 256), each
                                      index of what the proposal names (packs, then orphans, then
                                      strays) that is refused (varint), in ascending order; proposals
                                      in ascending order of their ids
========  ==========================  ===============================================================

A device has one proposal at a time; one that names nothing means that there is none. The id of a proposal is
the BLAKE3 hash of its key and value, derived with the context below: a ballot is about exactly these packs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from hybrisfs.kinds import BALLOT, PROPOSAL
from sync.codec import DecodeError, Reader, Writer
from sync.hashing import digest

__all__ = ["MAX_PACKS", "Answer", "Ballot", "Proposal", "Stage", "Stray", "ballot_key", "proposal_key"]

MAX_PACKS: Final = 256
_MAX_ANSWERS: Final = 4096
_ID_SIZE: Final = 16
_VERSION: Final = 1
_PROPOSAL_VERSION: Final = 2  # 1 named only packs that registers name
_CONTEXT: Final = "hybrisfs.gc 2026-11 proposal"


def proposal_key(device: bytes) -> bytes:
    return PROPOSAL.prefix + device


def ballot_key(device: bytes) -> bytes:
    return BALLOT.prefix + device


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


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a device proposes to discard: packs, packs that no register names (orphans), and single shares.

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
        """What ballots call this proposal of *device*."""
        return digest(_CONTEXT, proposal_key(device) + self.encode(), _ID_SIZE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a member says to a proposal: *refused* are indices of packs that it needs."""

    stage: Stage
    refused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ballot:
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
    def decode(value: bytes) -> Ballot:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a ballot of another version")
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
        return Ballot(answers)
