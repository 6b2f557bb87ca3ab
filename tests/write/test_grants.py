"""Grants on the clouds: put before anything is sealed with new keys, fetched by who meets such a thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from unittest import mock

import pytest

from hybrisfs.dispersal.errors import CloudsUnavailable, IntegrityError
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.keyring import KeyRing, Standing
from hybrisfs.keys import EpochKeys, VolumeKeys
from hybrisfs.members.epochs import MAX_GRANT
from hybrisfs.write.grants import Grants
from sync import DeviceKey, Members
from tests.dispersal.fakes import Cluster

T = TypeVar("T")

VOLUME = bytes(range(16))
FIRST = VolumeKeys.generate()
A, B, C = (DeviceKey.from_seed(bytes([number]) * 32) for number in (1, 2, 3))
BEFORE, AFTER = Members([A.public, B.public, C.public]), Members([A.public, B.public], [C.public])
SECOND = EpochKeys.after(0, [C.device_id])


class Clouds:
    """A stand-in for the engine: one cloud, which can be away."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts = 0
        self.away = False

    def put_everywhere(self, name: str, data: bytes) -> tuple[int, ...]:
        if self.away:
            raise CloudsUnavailable(name, {})
        self.puts += 1
        self.objects[name] = data
        return (0,)

    def get_object(self, name: str, limit: int, verify: Callable[[bytes], T]) -> T:
        try:
            return verify(self.objects[name])
        except (KeyError, ValueError, IntegrityError) as error:
            raise CloudsUnavailable(name, {"cloud": str(error)}) from error


@dataclass
class Holders:
    """Who has the keys, for now."""

    members: Members

    def key_holders(self) -> Members:
        return self.members


def member(clouds: Clouds, device: DeviceKey, members: Members = AFTER) -> tuple[Grants, KeyRing]:
    ring = KeyRing(VolumeKeys(FIRST.shared, device), environment=SYSTEM)
    return Grants(ring, VOLUME, Holders(members), clouds), ring


def begin(ring: KeyRing) -> None:
    ring.exclude([C.device_id])
    ring.add([SECOND])


def test_members_find_the_key_and_the_removed_device_does_not() -> None:
    clouds = Clouds()
    mine, ring = member(clouds, A)
    begin(ring)
    mine.ensure()
    theirs, other = member(clouds, B)
    assert theirs.fetch(A.device_id, SECOND.id)
    assert other.find(SECOND.id) == SECOND
    assert not theirs.fetch(A.device_id, SECOND.id), "nothing new"
    removed, old = member(clouds, C, BEFORE)
    assert not removed.fetch(A.device_id, SECOND.id)
    assert old.find(SECOND.id) is None
    assert removed.is_shut_out, "a member's word"
    old.add([SECOND])
    assert not removed.is_shut_out, "it has the keys after all"
    assert not theirs.is_shut_out
    assert not theirs.fetch(C.device_id, SECOND.id), "no member grants anything"
    assert not theirs.fetch(B.device_id, SECOND.id), "there is no such object"
    lonely, _ = member(Clouds(), C, BEFORE)
    assert not lonely.fetch(A.device_id, SECOND.id)
    assert not lonely.is_shut_out, "what no cloud returns says nothing"


def test_who_has_the_key_before_he_hears_of_the_removal_gives_it_to_members_only() -> None:
    clouds = Clouds()
    mine, ring = member(clouds, A)
    begin(ring)
    mine.ensure()
    theirs, _ = member(clouds, B, BEFORE)
    assert theirs.fetch(A.device_id, SECOND.id)
    theirs.ensure()
    removed, old = member(clouds, C, BEFORE)
    assert not removed.fetch(B.device_id, SECOND.id)
    assert old.find(SECOND.id) is None


def test_the_keys_of_a_later_epoch_do_not_go_along_with_those_of_an_earlier_one() -> None:
    """Who was removed from the earlier one is D; that C was, too, the writer has yet to hear."""
    clouds = Clouds()
    gone = DeviceKey.from_seed(bytes([4]) * 32)
    earlier, later = (
        EpochKeys.after(0, [gone.device_id]),
        EpochKeys.after(0, [gone.device_id, C.device_id]),
    )
    ring = KeyRing(VolumeKeys(FIRST.shared, B), environment=SYSTEM)
    ring.exclude([gone.device_id])
    ring.add([replace(later, number=0), earlier])
    assert ring.newest == earlier
    Grants(ring, VOLUME, Holders(BEFORE), clouds).ensure()
    removed, old = member(clouds, C, BEFORE)
    assert removed.fetch(B.device_id, earlier.id)
    assert old.find(later.id) is None


def test_whose_removal_was_vetoed_gets_keys_when_the_log_says_so() -> None:
    clouds = Clouds()
    mine, ring = member(clouds, A, BEFORE)
    ring.add([replace(SECOND, number=0)])
    left = frozenset([C.device_id])
    ring.judge(Standing(frozenset(), {SECOND.id: 5}, [], left))
    mine.ensure()
    returned, old = member(clouds, C, BEFORE)
    assert not returned.fetch(A.device_id, SECOND.id)
    ring.judge(Standing(frozenset(), {SECOND.id: 5}, [], left, {SECOND.id: left}))
    mine.ensure()
    assert returned.fetch(A.device_id, SECOND.id) and old.find(SECOND.id) == SECOND


def test_whoever_is_accused_grants_the_keys_that_it_uses() -> None:
    """Those who have not heard who accuses it have to read that."""
    clouds = Clouds()
    gone = DeviceKey.from_seed(bytes([4]) * 32).device_id
    used = EpochKeys.after(0, [gone])
    accused, ring = member(clouds, C, AFTER)
    ring.exclude([gone])
    ring.add([used])
    accused.ensure()
    other, theirs = member(clouds, B, BEFORE)
    assert other.fetch(C.device_id, used.id) and theirs.find(used.id) == used


def test_a_grant_is_put_once_for_an_epoch_and_those_who_are_members() -> None:
    clouds = Clouds()
    members = Holders(AFTER)
    ring = KeyRing(VolumeKeys(FIRST.shared, A), environment=SYSTEM)
    grants = Grants(ring, VOLUME, members, clouds)
    grants.ensure()
    assert clouds.puts == 0, "the first epoch is handed on by pairing"
    begin(ring)
    clouds.away = True
    with pytest.raises(CloudsUnavailable):
        grants.ensure()
    clouds.away = False
    grants.ensure()
    grants.ensure()
    assert clouds.puts == 1
    late = DeviceKey.generate()
    members.members = Members([A.public, B.public, late.public], [C.public])
    grants.ensure()
    assert clouds.puts == 2
    newcomer, new_ring = member(clouds, late)
    assert newcomer.fetch(A.device_id, SECOND.id) and new_ring.find(SECOND.id) == SECOND


def test_a_cloud_that_is_late_with_a_grant_is_no_liar() -> None:
    """One that was put again for a device that came since has not reached it yet."""
    members, late = Holders(AFTER), DeviceKey.from_seed(bytes([4]) * 32)
    with Cluster(1, 1, 3) as cluster:
        ring = KeyRing(VolumeKeys(FIRST.shared, A), environment=SYSTEM)
        grants = Grants(ring, VOLUME, members, cluster.engine)
        begin(ring)
        grants.ensure()
        before = dict(cluster.stores[0].objects)
        members.members = Members([A.public, B.public, late.public], [C.public])
        grants.ensure()
        slow = cluster.stores[cluster.asked_first(range(3), MAX_GRANT)]
        slow.objects |= before
        new_ring = KeyRing(VolumeKeys(FIRST.shared, late), environment=SYSTEM)
        newcomer = Grants(new_ring, VOLUME, members, cluster.engine)
        assert newcomer.fetch(A.device_id, SECOND.id) and new_ring.find(SECOND.id) == SECOND
        assert "get" in slow.requests
        assert cluster.states() == {}


def test_keys_that_cannot_be_stored_are_not_used(tmp_path: Path) -> None:
    clouds = Clouds()
    mine, ring = member(clouds, A)
    begin(ring)
    mine.ensure()

    full = mock.Mock(side_effect=OSError(28, "No space left"))
    broken = Environment(fsync=full, fdatasync=full)
    other = KeyRing(VolumeKeys(FIRST.shared, B), path=tmp_path / "keys.json", environment=broken)
    assert not Grants(other, VOLUME, Holders(AFTER), clouds).fetch(A.device_id, SECOND.id)
    assert other.find(SECOND.id) is None
