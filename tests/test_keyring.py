"""Which keys are sealed with, and which open."""

from __future__ import annotations

import pytest

from hybrisfs.dispersal.errors import IntegrityError, UnreadableHereError
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import EpochKeys, VolumeKeys

KEYS = VolumeKeys.generate()
GONE, LATER = b"g" * 16, b"l" * 16
SECOND, THIRD = EpochKeys.after(0, [GONE]), EpochKeys.after(1, [GONE, LATER])


def test_only_an_epoch_that_excludes_all_who_were_removed_seals() -> None:
    ring = KeyRing(KEYS)
    assert ring.newest == KEYS.first and ring.is_fit
    ring.exclude([GONE])
    assert not ring.is_fit
    assert ring.add([SECOND]) and ring.newest == SECOND and ring.is_fit
    ring.exclude([LATER])
    assert not ring.is_fit
    assert ring.add([THIRD]) and ring.newest == THIRD and ring.is_fit
    assert not ring.add([THIRD, SECOND])
    assert KeyRing(ring.keys, [GONE]).newest == THIRD, "the one with the highest rank that will do"


def test_of_two_epochs_begun_at_once_all_devices_use_the_same() -> None:
    other = EpochKeys.after(0, [GONE])
    one, two = KeyRing(KEYS, [GONE]), KeyRing(KEYS, [GONE])
    one.add([SECOND, other])
    two.add([other])
    two.add([SECOND])
    assert one.newest == two.newest


def test_keys_are_stored_before_they_are_used() -> None:
    kept: list[VolumeKeys] = []

    def keep(keys: VolumeKeys) -> None:
        assert ring.find(SECOND.id) is None
        if not kept:
            kept.append(keys)
            raise OSError(28, "No space left")
        kept.append(keys)

    ring = KeyRing(KEYS, [GONE], keep)
    with pytest.raises(OSError, match="space"):
        ring.add([SECOND])
    assert ring.newest == KEYS.first and ring.find(SECOND.id) is None
    assert ring.add([SECOND])
    assert kept[-1].shared.epochs == (KEYS.first, SECOND)


def test_each_purpose_has_a_key_of_its_own_per_epoch() -> None:
    ring = KeyRing(KEYS, [GONE])
    ring.add([SECOND])
    purposes = (ring.chunks, ring.tables, ring.segments)
    newest = {purpose.newest().key for purpose in purposes}
    first = {purpose.find(KEYS.first.id) for purpose in purposes}
    assert len(newest | first) == 6
    assert {purpose.newest().epoch for purpose in purposes} == {SECOND.id}
    assert ring.chunks.find(b"none") is None


def test_who_was_removed_opens_what_was_sealed_before_and_nothing_after() -> None:
    ring = KeyRing(KEYS)
    removed = Sealer(KeyRing(KEYS).chunks, KEYS.dedup)
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
