"""Which keys are sealed with, and which open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hybrisfs.dispersal.errors import IntegrityError, UnreadableHereError
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.keyring import KeyRing, Standing
from hybrisfs.keys import MAX_EPOCH_NUMBER, MAX_EPOCHS, EpochKeys, VolumeKeys

KEYS = VolumeKeys.generate()
GONE, LATER = b"g" * 16, b"l" * 16
SECOND, THIRD = EpochKeys.after(0, [GONE]), EpochKeys.after(1, [GONE, LATER])


def test_only_an_epoch_that_excludes_all_who_were_removed_seals() -> None:
    ring = KeyRing(KEYS, environment=SYSTEM)
    assert ring.newest == KEYS.first and ring.is_fit
    ring.exclude([GONE])
    assert not ring.is_fit
    assert ring.add([SECOND]) and ring.newest == SECOND and ring.is_fit
    ring.exclude([LATER])
    assert not ring.is_fit
    assert ring.add([THIRD]) and ring.newest == THIRD and ring.is_fit
    assert not ring.add([THIRD, SECOND])
    assert KeyRing(ring.keys, [GONE], environment=SYSTEM).newest == THIRD, (
        "the one with the highest rank that will do"
    )


def test_of_two_epochs_begun_at_once_all_devices_use_the_same() -> None:
    other = EpochKeys.after(0, [GONE])
    one, two = KeyRing(KEYS, [GONE], environment=SYSTEM), KeyRing(KEYS, [GONE], environment=SYSTEM)
    one.add([SECOND, other])
    two.add([other])
    two.add([SECOND])
    assert one.newest == two.newest


def test_an_epoch_counts_for_who_granted_it_and_not_for_what_it_says_of_itself() -> None:
    ring = KeyRing(KEYS, environment=SYSTEM)
    liar = EpochKeys(b"liar", MAX_EPOCH_NUMBER, bytes(32), bytes(32), frozenset([GONE]))
    ring.add([liar, SECOND])
    ring.judge(Standing(frozenset([GONE]), {SECOND.id: 5}, [liar.id]))
    ring.exclude([GONE])
    assert ring.is_fit and ring.newest == SECOND
    ring.judge(Standing(frozenset([GONE]), {}, [SECOND.id, liar.id]))
    assert not ring.is_fit and ring.newest == KEYS.first
    ring.judge(Standing(frozenset([GONE]), {SECOND.id: 5, liar.id: 4}, []))
    assert ring.newest == SECOND, "the clock of the log counts"
    ring.judge(Standing(frozenset(), {SECOND.id: 5}, [liar.id]))
    assert not ring.is_fit, "nobody is excluded in advance"


def test_an_epoch_whose_keys_a_removed_device_was_given_seals_nothing() -> None:
    ring = KeyRing(KEYS, environment=SYSTEM)
    ring.add([SECOND])
    granted = {SECOND.id: 5}
    ring.judge(Standing(frozenset([GONE]), granted, [], given={SECOND.id: frozenset([LATER])}))
    ring.exclude([GONE])
    assert ring.is_fit and ring.newest == SECOND and ring.withheld_from(SECOND) == {GONE}
    ring.judge(Standing(frozenset([GONE]), granted, [], given={SECOND.id: frozenset([GONE, LATER])}))
    assert not ring.is_fit and not ring.withheld_from(SECOND)


def test_who_does_not_know_the_log_goes_by_what_it_was_handed() -> None:
    ring = KeyRing(KEYS, environment=SYSTEM)
    liar = EpochKeys(b"liar", MAX_EPOCH_NUMBER, bytes(32), bytes(32), frozenset([GONE]))
    ring.add([liar, replace(SECOND, number=0)])
    ring.judge(Standing(frozenset([GONE]), {SECOND.id: 5}, [liar.id]))
    ring.exclude([GONE])
    joined = KeyRing(ring.keys, [GONE], environment=SYSTEM)
    assert joined.is_fit and joined.newest == SECOND and joined.find(liar.id) == liar


def test_what_only_clouds_tell_of_is_for_reading_and_makes_room() -> None:
    ring = KeyRing(KEYS, environment=SYSTEM)
    heard = [EpochKeys.after(-1, [GONE]) for _ in range(MAX_EPOCHS + 5)]
    assert all(one.number == 0 for one in heard)
    assert ring.add(heard) and len(ring.keys.shared.epochs) == MAX_EPOCHS
    ring.exclude([GONE])
    assert not ring.is_fit and ring.newest == KEYS.first
    assert not ring.add(heard[-1:]), "there is no room"
    ring.judge(Standing(frozenset([GONE]), {SECOND.id: 5}, []))
    assert ring.add([SECOND]) and ring.newest == SECOND and ring.is_fit
    assert len(ring.keys.shared.epochs) == MAX_EPOCHS


def test_all_that_is_taken_in_can_be_loaded_again(tmp_path: Path) -> None:
    ring = KeyRing(KEYS, path=tmp_path / "keys.json", environment=SYSTEM)
    for number in (MAX_EPOCH_NUMBER - 1, MAX_EPOCH_NUMBER):
        assert ring.add([EpochKeys.after(number, [])])
        assert VolumeKeys.load(tmp_path / "keys.json").shared.epochs == ring.keys.shared.epochs


def test_keys_are_stored_before_they_are_used(tmp_path: Path) -> None:
    syncs: list[int] = []

    def sync(descriptor: int) -> None:
        assert ring.find(SECOND.id) is None
        syncs.append(descriptor)
        if len(syncs) == 1:
            raise OSError(28, "No space left")

    path = tmp_path / "keys.json"
    ring = KeyRing(KEYS, [GONE], path, environment=Environment(fsync=sync, fdatasync=sync))
    with pytest.raises(OSError, match="space"):
        ring.add([SECOND])
    assert ring.newest == KEYS.first and ring.find(SECOND.id) is None
    assert not path.exists()
    assert ring.add([SECOND])
    assert VolumeKeys.load(path).shared.epochs == (KEYS.first, SECOND)


def test_each_purpose_has_a_key_of_its_own_per_epoch() -> None:
    ring = KeyRing(KEYS, [GONE], environment=SYSTEM)
    ring.add([SECOND])
    purposes = (ring.chunks, ring.tables, ring.segments)
    newest = {purpose.newest().key for purpose in purposes}
    first = {purpose.find(KEYS.first.id) for purpose in purposes}
    assert len(newest | first) == 6
    assert {purpose.newest().epoch for purpose in purposes} == {SECOND.id}
    assert ring.chunks.find(b"none") is None


def test_who_was_removed_opens_what_was_sealed_before_and_nothing_after() -> None:
    ring = KeyRing(KEYS, environment=SYSTEM)
    removed = Sealer(KeyRing(KEYS, environment=SYSTEM).chunks, KEYS.dedup)
    mine = Sealer(ring.chunks, KEYS.dedup)
    chunk = mine.chunk_id(b"content")
    before = mine.seal(chunk, b"content")
    ring.exclude([GONE])
    ring.add([SECOND])
    after = mine.seal(chunk, b"content")
    assert removed.open(chunk, before, 7) == mine.open(chunk, before, 7) == mine.open(chunk, after, 7)
    with pytest.raises(UnreadableHereError):
        removed.open(chunk, after, 7)
    with pytest.raises(
        IntegrityError, match="does not decrypt"
    ):  # nor when the epoch is said to be a known one
        removed.open(chunk, after[:1] + before[1:5] + after[5:], 7)
