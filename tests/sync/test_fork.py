"""A proof of a fork convicts whoever signed it, and nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sync.identity import Members
from sync.outcome import ForkProof, verify_fork_proof
from sync.update import SignedUpdate
from tests.sync.support import KEYS, MEMBERS, STRANGER, VOLUME, Device, chain, flip, forge


def forked_updates() -> tuple[SignedUpdate, SignedUpdate]:
    device = Device(KEYS[0])
    device.write()
    twin = device.clone()
    return device.write((b"k", b"1")), twin.write((b"k", b"2"))


ONE, OTHER = forked_updates()
PROOF = ForkProof.of(ONE.header, OTHER.header)


def test_a_proof_is_small_and_the_same_either_way() -> None:
    assert verify_fork_proof(PROOF, VOLUME, MEMBERS) == KEYS[0].device_id
    assert ForkProof.of(OTHER.header, ONE.header) == PROOF
    assert len(PROOF.first) + len(PROOF.second) < 600


@given(st.integers(min_value=0), st.booleans())
def test_no_flipped_bit_convicts(bit: int, second: bool) -> None:
    name = "second" if second else "first"
    altered = replace(PROOF, **{name: flip(getattr(PROOF, name), bit)})
    assert verify_fork_proof(altered, VOLUME, MEMBERS) is None


first, second = chain(2)
stranger = [forge(update, STRANGER) for update in (ONE, OTHER)]
another_writer = forge(OTHER, KEYS[1])


@pytest.mark.parametrize(
    "proof",
    [
        ForkProof(PROOF.second, PROOF.first),
        ForkProof(PROOF.first, PROOF.first),
        replace(PROOF, first=PROOF.first + b"\0"),
        replace(PROOF, first=b""),
        ForkProof.of(first.header, second.header),
        ForkProof.of(stranger[0].header, stranger[1].header),
        ForkProof.of(ONE.header, another_writer.header),
        ForkProof.of(ONE.header, forge(OTHER, KEYS[0], volume=bytes(16)).header),
    ],
    ids=["order", "one update", "longer", "empty", "a chain", "stranger", "two writers", "two volumes"],
)
def test_what_proves_nothing(proof: ForkProof) -> None:
    assert verify_fork_proof(proof, VOLUME, MEMBERS) is None


def test_a_proof_holds_for_its_volume_and_members_only() -> None:
    assert verify_fork_proof(PROOF, bytes(16), MEMBERS) is None
    assert verify_fork_proof(PROOF, VOLUME, Members([KEYS[1].public])) is None
