"""Snapshots from who knows where: read or refused, and never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.checkpoint.intake import check_snapshot
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.checkpoint.snapshot import (
    HEADER,
    LOG_INDEX,
    PACKS,
    REGISTERS,
    Header,
    Latest,
    read_hints,
    read_snapshot,
)
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.state.checkpoints import StoredSnapshot
from sync import DecodeError, VersionVector, Writer
from sync.checkpoint import Root
from tests.checkpoint.test_adoption import snapshot_of
from tests.merge.fleet import Fleet
from tests.simulation.determinism import SMALL
from tests.tree.rig import SEALER, VOLUME


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LocalSnapshots, StoredSnapshot, VersionVector]]:
    snapshots = LocalSnapshots(tmp_path_factory.mktemp("snapshots"), SEALER, SYSTEM)
    fleet = Fleet(2, environment=lambda _: Environment(limits=SMALL))
    for number in range(6):
        fleet[number % 2].write(f"file {number}", b"x" * 99)
        fleet.meet()
    stored = snapshot_of(fleet[0], snapshots)
    yield snapshots, stored, fleet[0].rig.updates.state.vector
    fleet.discard()


def root_of(made: tuple[LocalSnapshots, StoredSnapshot, VersionVector]) -> Root:
    _, stored, vector = made
    return Root(VOLUME, stored.snapshot, vector, stored.slices, stored.hints, {})


def test_what_was_made_is_read(made: tuple[LocalSnapshots, StoredSnapshot, VersionVector]) -> None:
    snapshots, stored, _ = made
    assert len(stored.slices) > 3
    header = check_snapshot(snapshots, stored, root_of(made))
    records = list(read_snapshot(snapshots.pieces(stored)))
    assert header.updates == sum(not isinstance(one, Header | Latest) for one in records)
    assert list(read_hints(snapshots.hints(stored), header.updates))


def test_slices_in_another_order_or_number_are_not_the_snapshot(
    made: tuple[LocalSnapshots, StoredSnapshot, VersionVector], tmp_path: Path
) -> None:
    snapshots, stored, _ = made
    pieces = list(snapshots.pieces(stored))
    for wrong in (
        pieces[:-1],
        [pieces[0], pieces[2], pieces[1], *pieces[3:]],
        [*pieces, pieces[-1]],
        pieces[1:],
    ):
        other = LocalSnapshots(tmp_path, SEALER, SYSTEM)
        again = other.put(wrong, snapshots.hints(stored), lambda: stored.snapshot)
        with pytest.raises(DecodeError):
            check_snapshot(other, again, root_of(made))


def test_a_file_that_has_rotted_is_found_out(
    made: tuple[LocalSnapshots, StoredSnapshot, VersionVector], tmp_path: Path
) -> None:
    snapshots, stored, _ = made
    other = LocalSnapshots(tmp_path, SEALER, SYSTEM)
    again = other.put(snapshots.pieces(stored), snapshots.hints(stored), lambda: stored.snapshot)
    assert again == stored
    [path] = tmp_path.glob("*.snapshot")
    data = bytearray(path.read_bytes())
    data[stored.slices[0].length] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecodeError, match="damaged"):
        list(other.pieces(stored))
    assert other.find(stored, stored.slices[1].name) is None
    assert other.find(stored, stored.slices[0].name) == next(snapshots.pieces(stored))
    other.keep_only([])
    assert not list(tmp_path.iterdir())


HEAD = Header(VOLUME, VersionVector({b"d" * 16: 1}), 1).encode()
ENTRY = Writer().u8(LOG_INDEX).varint(0).raw(b"d" * 16).varint(0).varint(0).u64(1).raw(b"h" * 32).getvalue()


def register(key: bytes, update: int = 0) -> bytes:
    return Writer().blob(key).varint(update).varint(2).raw(b"v").getvalue()


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [ENTRY],
        [HEAD],
        [HEAD, HEAD],
        [HEAD, bytes([REGISTERS]) + register(b"k"), ENTRY],
        [HEAD, ENTRY, bytes([REGISTERS])],
        [HEAD, ENTRY, bytes([PACKS]) + register(b"k")],
        [HEAD, ENTRY, bytes([REGISTERS]) + register(b"")],
        [HEAD, ENTRY, bytes([REGISTERS]) + register(b"k", 1)],
        [HEAD, ENTRY, bytes([REGISTERS]) + register(b"k") * 2],
        [HEAD, ENTRY, bytes([REGISTERS]) + register(b"l") + register(b"k")],
        [HEAD, ENTRY, bytes([REGISTERS]) + register(b"k")[:-1]],
        [HEAD, ENTRY + ENTRY[1:]],
        [bytes([HEADER]) + HEAD[1:] + b"x", ENTRY],
    ],
)
def test_what_no_correct_device_writes(pieces: list[bytes]) -> None:
    assert len(list(read_snapshot([HEAD, ENTRY, bytes([REGISTERS]) + register(b"k")]))) == 3
    with pytest.raises(DecodeError):
        list(read_snapshot(pieces))


@given(st.lists(st.binary(max_size=80) | st.sampled_from([HEAD, ENTRY]), max_size=4))
def test_hostile_bytes_raise_nothing_else(pieces: list[bytes]) -> None:
    for read in (lambda: list(read_snapshot(pieces)), lambda: list(read_hints(pieces, 5))):
        try:
            read()
        except DecodeError:
            continue
