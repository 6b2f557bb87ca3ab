"""What members sign about packs that may be discarded.

========  ==========================  ===============================================================
register  key                         value
========  ==========================  ===============================================================
proposal  ``d`` device id (16)        version u8 = 1, serial (varint), count (varint <= 256), each
                                      pack id (32)
ballot    ``v`` device id (16)        version u8 = 1, count (varint <= 4096), each proposal id (16),
                                      stage u8 (1 promised, 2 agreed), count (varint <= 256), each
                                      index of a pack in the proposal that is refused (varint), in
                                      ascending order; proposals in ascending order of their ids
========  ==========================  ===============================================================

A device has one proposal at a time; one without packs means that there is none. The id of a proposal is the
BLAKE3 hash of its key and value, derived with the context below: a ballot is about exactly these packs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final

from sync.codec import DecodeError, Reader, Writer
from sync.hashing import digest

__all__ = ["MAX_PACKS", "Answer", "Ballot", "Proposal", "Stage", "ballot_key", "proposal_key"]

MAX_PACKS: Final = 256
_MAX_ANSWERS: Final = 4096
_ID_SIZE: Final = 16
_VERSION: Final = 1
_CONTEXT: Final = "hybrisfs.discard 2026-11 proposal"


def proposal_key(device: bytes) -> bytes:
    return b"d" + device


def ballot_key(device: bytes) -> bytes:
    return b"v" + device


class Stage(IntEnum):
    """How far a member has gone with a proposal."""

    NONE = 0
    PROMISED = 1
    AGREED = 2


@dataclass(frozen=True, slots=True)
class Proposal:
    """Packs that a device proposes to discard. *serial* tells its proposals apart."""

    serial: int
    packs: tuple[bytes, ...]

    def encode(self) -> bytes:
        out = Writer().u8(_VERSION).varint(self.serial).varint(len(self.packs))
        for pack in self.packs:
            out.raw(pack)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> Proposal:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a proposal of another version")
        serial = reader.varint()
        packs = tuple(reader.raw(32) for _ in range(reader.varint(MAX_PACKS)))
        reader.end()
        if len(set(packs)) != len(packs):
            raise DecodeError("a proposal that names a pack twice")
        return Proposal(serial, packs)

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
        for _ in range(reader.varint(_MAX_ANSWERS)):
            proposal, stage = reader.raw(_ID_SIZE), reader.u8()
            refused = tuple(reader.varint(MAX_PACKS - 1) for _ in range(reader.varint(MAX_PACKS)))
            if stage not in (Stage.PROMISED, Stage.AGREED):
                raise DecodeError(f"an answer of stage {stage}")
            if any(one >= other for one, other in pairwise(refused)):
                raise DecodeError("refusals out of order")
            if answers and proposal <= max(answers):
                raise DecodeError("answers out of order")
            answers[proposal] = Answer(Stage(stage), refused)
        reader.end()
        return Ballot(answers)
