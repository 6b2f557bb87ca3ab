"""Proofs of misbehaviour: nobody can be accused falsely, and what is proven stays proven."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.members.evidence import (
    MAX_PROVEN_UPDATE,
    Misdeed,
    decode_evidence,
    decode_evidence_file,
    encode_evidence_file,
    evidence_key,
    prove_fork,
    prove_offence,
)
from hybrisfs.members.members import Member, member_key
from hybrisfs.merge.authority import breach, fault, void
from hybrisfs.registers.node_id import ROOT_ID, new_node_id
from hybrisfs.registers.tree import Place, place_key
from sync import DecodeError, DeviceKey, SignedUpdate, Write
from sync.codec import ZERO_HASH
from sync.update import Update, decode_signed, encode_signed
from tests.sync.support import NOON, VOLUME

LIAR, HONEST = (DeviceKey.from_seed(bytes([number]) * 32) for number in (7, 8))
BAD = (place_key(ROOT_ID, 0), Place(bytes(range(16)), b"root").encode())
GOOD = (place_key(new_node_id(stat.S_IFREG, NOON, random_bytes=bytes), 0), Place(ROOT_ID, b"name").encode())
FORK = evidence_key(LIAR.device_id, Misdeed.FORK)
OFFENCE = evidence_key(LIAR.device_id, Misdeed.OFFENCE)


def signed(
    *writes: Write, key: DeviceKey = LIAR, volume: bytes = VOLUME, time_ns: int = NOON
) -> SignedUpdate:
    update = Update(volume, key.device_id, 1, 0, ZERO_HASH, (), ZERO_HASH, time_ns, writes)
    return decode_signed(encode_signed(update, key))


ONE, OTHER = signed(GOOD), signed(BAD, time_ns=NOON + 5)
FORKED = prove_fork(LIAR.public, ONE.header, OTHER.header)
BROKE = prove_offence(LIAR.public, OTHER.data)


def test_a_fork_is_proven_by_two_signatures() -> None:
    charge = decode_evidence(FORK, FORKED, breach)
    assert (charge.device, charge.misdeed, charge.volume) == (LIAR.device_id, Misdeed.FORK, VOLUME)
    assert charge.time_ns == NOON + 5
    assert "two histories" in charge.words
    assert fault(HONEST.device_id, FORK, FORKED) is None


def test_an_offence_is_proven_by_the_update() -> None:
    charge = decode_evidence(OFFENCE, BROKE, breach)
    assert (charge.device, charge.misdeed, charge.time_ns) == (LIAR.device_id, Misdeed.OFFENCE, NOON + 5)
    assert "cannot stand there" in charge.words
    assert fault(HONEST.device_id, OFFENCE, BROKE) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (FORK, BROKE),
        (OFFENCE, FORKED),
        (FORK, None),
        (FORK[:-1] + b"\3", FORKED),
        (FORK[:-1], FORKED),
        (FORK, prove_fork(LIAR.public, ONE.header, ONE.header)),
        (FORK, prove_fork(LIAR.public, ONE.header, signed(GOOD, volume=bytes(16)).header)),
        (FORK, prove_fork(LIAR.public, ONE.header, signed(BAD, key=HONEST).header)),
        (FORK, prove_fork(HONEST.public, ONE.header, OTHER.header)),
        (OFFENCE, prove_offence(LIAR.public, ONE.data)),
        (OFFENCE, prove_offence(LIAR.public, signed(BAD, key=HONEST).data)),
        (OFFENCE, prove_offence(HONEST.public, OTHER.data)),
        (OFFENCE, prove_offence(LIAR.public, signed(BAD, (b"Z", bytes(MAX_PROVEN_UPDATE))).data)),
        (evidence_key(HONEST.device_id, Misdeed.OFFENCE), BROKE),
    ],
)
def test_what_proves_nothing_breaks_the_rule(key: bytes, value: bytes | None) -> None:
    assert fault(HONEST.device_id, key, value) is not None


def test_evidence_within_evidence_is_not_looked_into() -> None:
    false = prove_offence(LIAR.public, ONE.data)
    nested = signed((OFFENCE, false))
    assert fault(HONEST.device_id, OFFENCE, prove_offence(LIAR.public, nested.data)) is not None


@given(st.sampled_from((FORKED, BROKE)), st.data())
def test_a_changed_byte_proves_nothing(value: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(value) - 1))
    changed = value[:at] + bytes([value[at] ^ data.draw(st.integers(1, 255))]) + value[at + 1 :]
    key = FORK if value is FORKED else OFFENCE
    assert fault(HONEST.device_id, key, changed) is not None


def test_a_file_holds_all_that_is_needed() -> None:
    data = encode_evidence_file(VOLUME, OFFENCE, BROKE)
    assert decode_evidence_file(data, breach) == decode_evidence(OFFENCE, BROKE, breach)
    for wrong in (data[:-1], data + b"\0", b"", encode_evidence_file(bytes(16), OFFENCE, BROKE)):
        with pytest.raises(DecodeError):
            decode_evidence_file(wrong, breach)


def test_half_of_what_belongs_together_convicts_its_writer() -> None:
    reserve = Member(DeviceKey.from_seed(b"\5" * 32).public, "recovery kit", reserve=True)
    half = signed((member_key(reserve.device), reserve.encode()))
    assert void(half) == (0,)
    charge = decode_evidence(OFFENCE, prove_offence(LIAR.public, half.data), breach)
    assert "half of what belongs together" in charge.words
