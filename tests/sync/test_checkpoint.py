"""Checkpoints: their roots, who has stated them, and their parts as they stand on clouds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.checkpoint import (
    MAX_ROOT,
    MAX_SLICES,
    Root,
    Slice,
    Statement,
    checkpoint_name,
    open_object,
    parse_checkpoint_name,
    seal_object,
    states,
)
from sync.codec import Buffer, digest
from sync.errors import DecodeError, LimitError
from sync.identity import Members
from sync.vector import VersionVector
from tests.sync.support import BOX_KEY, KEYS, MEMBERS, NONCE, STRANGER, VOLUME, decodes, flip, vectors

SNAPSHOT = b"s" * 32
names = st.binary(min_size=32, max_size=32)
VECTOR = VersionVector({KEYS[0].device_id: 3, KEYS[1].device_id: 2})
slices = st.lists(st.builds(Slice, names, st.integers(1, 1 << 20)), max_size=4).map(tuple)


def evidence(*keys: int) -> dict[bytes, bytes]:
    return {KEYS[one].device_id: Statement.of(VOLUME, VECTOR, SNAPSHOT, KEYS[one]).signature for one in keys}


ROOT = Root(VOLUME, SNAPSHOT, VECTOR, (Slice(b"1" * 32, 9),), (Slice(b"2" * 32, 5),), evidence(0, 1))


def name_of(data: Buffer) -> bytes:
    return digest("a name", data)


SEALED = seal_object(name_of(b"part"), b"part", VOLUME, BOX_KEY, NONCE)


def opened(data: bytes, name: bytes = name_of(b"part")) -> bytes:
    return open_object(data, name, VOLUME, BOX_KEY, name_of)


@given(vectors, slices.filter(bool), slices, st.sets(st.integers(0, 3), min_size=1))
def test_round_trip(
    vector: VersionVector, some: tuple[Slice, ...], hints: tuple[Slice, ...], who: set[int]
) -> None:
    root = Root(VOLUME, SNAPSHOT, vector, some, hints, evidence(*who))
    assert Root.decode(root.encode()) == root


@given(st.binary(max_size=300))
def test_hostile_bytes_raise_nothing_else(data: bytes) -> None:
    for read in (Root.decode, opened):
        try:
            read(data)
        except DecodeError:
            continue


@given(st.integers(min_value=0), st.integers(0, len(SEALED) - 1))
def test_altered_parts_do_not_open(bit: int, length: int) -> None:
    assert opened(SEALED) == b"part"
    assert not decodes(opened, flip(SEALED, bit))
    assert not decodes(opened, SEALED[:length])


def test_a_part_stands_under_its_own_name_only() -> None:
    with pytest.raises(DecodeError, match="another part"):
        opened(SEALED, name_of(b"other"))
    swapped = seal_object(name_of(b"part"), b"other", VOLUME, BOX_KEY, NONCE)
    with pytest.raises(DecodeError, match="not the one"):
        opened(swapped)
    assert parse_checkpoint_name(checkpoint_name(SNAPSHOT)) == SNAPSHOT
    for name in ("checkpoints/", "checkpoints/xy", "log/00", checkpoint_name(SNAPSHOT) + "0"):
        assert parse_checkpoint_name(name) is None


def test_statements_are_of_one_device_one_volume_and_one_snapshot() -> None:
    ROOT.check(VOLUME, MEMBERS)
    key = KEYS[0]
    good = ROOT.evidence[key.device_id]
    assert states(VOLUME, key.device_id, key.public, SNAPSHOT, good)
    assert not states(bytes(16), key.device_id, key.public, SNAPSHOT, good)
    assert not states(VOLUME, key.device_id, key.public, b"t" * 32, good)
    for wrong, reason in (
        (replace(ROOT, evidence={key.device_id: ROOT.evidence[KEYS[1].device_id]}), "did not sign"),
        (replace(ROOT, snapshot=b"t" * 32), "did not sign"),
        (replace(ROOT, evidence={STRANGER.device_id: STRANGER.sign(b"x")}), "unknown"),
        (replace(ROOT, volume=bytes(16)), "another volume"),
    ):
        with pytest.raises(DecodeError, match=reason):
            wrong.check(VOLUME, MEMBERS)


def test_who_was_removed_has_stated_it_too() -> None:
    ROOT.check(VOLUME, Members([KEYS[0].public], [KEYS[1].public]))


def test_bounds() -> None:
    many = (Slice(b"1" * 32, 9),) * (MAX_SLICES + 1)
    with pytest.raises(LimitError):
        replace(ROOT, slices=many).encode()
    with pytest.raises(DecodeError, match="at most"):
        Root.decode(bytes(MAX_ROOT + 1))
    for wrong in (
        replace(ROOT, slices=()),
        replace(ROOT, evidence={}),
        replace(ROOT, slices=(Slice(b"1" * 32, 0),)),
    ):
        with pytest.raises(DecodeError):
            Root.decode(wrong.encode())


def test_statements_of_devices_that_came_later_count_nothing() -> None:
    """A device that was set back does not know them, and must not be kept from its own checkpoint by that."""
    evidence = {**ROOT.evidence, STRANGER.device_id: STRANGER.sign(b"x")}
    replace(ROOT, evidence=evidence).check(VOLUME, MEMBERS)
