"""Containers on the clouds, when clouds fail and members lie; what is deleted, and what is put back."""

from __future__ import annotations

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from backends.errors import TransientError
from backends.webdav import WebDavStore
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.erasure import split
from hybrisfs.dispersal.errors import CloudsUnavailable, IntegrityError
from hybrisfs.environment import Environment, Limits
from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_objects import Metadata, Shares
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.containers import ANYBODY, Key
from hybrisfs.kv.errors import (
    NoSuchContainerError,
)
from hybrisfs.kv.mend import CloudMender
from hybrisfs.kv.record import ABSENT, PRESENT
from hybrisfs.quorums.consensus import KEPT_SECONDS
from hybrisfs.quorums.runner import Runner, RunnerLimits
from sync import OneKey
from tests.backends.faulty_server import FaultyProxy
from tests.backends.servers import FixedCredentials, wsgidav
from tests.dispersal.fakes import HASTY, SEALER, TABLES
from tests.kv.cloud_rig import BIG, KEY, PLACES, Rig
from tests.system.deadline import until

# -- when clouds fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", PLACES)
@pytest.mark.parametrize("behaviour", ["down", "auth", "missing", "corrupt", "altered", "swapped", "full"])
def test_f_clouds_may_do_as_they_like(wish: str, behaviour: str) -> None:
    for victim in range(5):
        with Rig(wish, timing=HASTY) as rig:
            rig.store.put("box", "before", BIG)
            rig.behave(behaviour, victim)  # type: ignore[arg-type]
            there = rig.open()
            assert there.get("box", "before").value == BIG
            assert there.put("box", "new", BIG, ABSENT)
            assert rig.store.get("box", "new").value == BIG
            assert [one.key for one in there.list("box")] == ["before", "new"]
            rig.behave("ok")
            other = (victim + 1) % 5
            rig.behave(behaviour, other)  # type: ignore[arg-type]
            assert rig.open().get("box", "new").value == BIG


def test_a_cloud_that_hangs_is_not_waited_for() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", BIG)
        rig.behave("hang", 2)
        assert rig.open().get("box", "key").value == BIG
        rig.store.put("box", "key", b"small")
        assert rig.open().get("box", "key").value == b"small"


def test_values_do_not_pile_up_in_memory_for_a_cloud_that_hangs() -> None:
    with Rig(timing=HASTY) as rig:
        rig.behave("hang", 2)
        for n in range(12):
            rig.store.put("box", "key", os.urandom(24 << 20))
            rig.store.put("box", f"small-{n}", b"small")
        hanging = rig.engine.clouds[2]._workers
        large = [job for job in hanging._waiting if not job.small]
        assert 6 <= len(large) <= 8, "of 8 MiB each"
        rig.stores[2].behaviour = "ok"
        rig.stores[2].released.set()
        assert len(rig.store.list("box")) == 13


def test_more_than_f_clouds_that_fail_are_named() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", b"value")
        rig.behave("down", 0, 1)
        for what in (rig.store.get, lambda container, key: rig.store.put(container, key, b"other")):
            with pytest.raises(CloudsUnavailable, match=r"connection refused; c.: connection refused"):
                what("box", "key")
        rig.behave("ok")
        assert rig.store.get("box", "key").value == b"value"


def test_clouds_that_the_volume_has_no_more_count_as_failed() -> None:
    with Rig(size=5) as rig:
        rig.store.put("box", "key", BIG)
        rig.rest()
        rig.engine.clouds.retire(1)
        there = rig.open()
        assert there.get("box", "key").value == BIG
        there.put("box", "key", b"value", PRESENT)
        assert [one.key for one in there.list("box")] == ["key"]
        (held,) = CloudMender(there).held()
        (finding,) = filter(None, (CloudMender(there).look_at(held, cloud) for cloud in range(5)))
        assert (finding.kind, finding.what) == (
            "unreadable",
            "the value of box/key (cloud 1: is no longer configured)",
        )
        rig.engine.clouds.retire(2)
        with pytest.raises(CloudsUnavailable, match="is no longer configured"):
            there.get("box", "key")


def test_a_value_that_is_lost_is_not_looked_for_for_long() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", b"value")
        rig.rest()
        prefix = rig.box
        for store in rig.stores:
            for name in [name for name in store.objects if name.startswith(prefix) and store.objects[name]]:
                del store.objects[name]
        with pytest.raises(CloudsUnavailable, match=r"box/key cannot be read .*no such object"):
            rig.store.get("box", "key")


def test_a_removed_device_cannot_read_what_is_written_later() -> None:
    with Rig() as rig:
        rig.store.put("box", "key", BIG)
        with pytest.raises(IntegrityError):
            rig.open(b"former".ljust(32)).get("box", "key")


@pytest.mark.parametrize("value", [b"small", BIG])
@pytest.mark.parametrize("wish", PLACES)
def test_a_reader_completes_what_a_writer_has_not(wish: str, value: bytes) -> None:
    """PoWerStore's puts back the proof alone, PASIS's the objects, made again from those that are there."""
    with Rig(wish) as rig:
        for reader in ("stat", "get", "list"):
            before = set(_keys(rig))
            rig.store.put("box", "key", value)
            new = set(_keys(rig)) - before
            proofs = {name for name in new if not rig.stores[0].objects[name]}
            assert len(proofs) == (wish == "clouds")
            lost = proofs or new
            for store in rig.stores[3:]:
                for name in lost:
                    del store.objects[name]
            there = rig.open()
            if reader == "list":
                assert there.list("box")[0].size == len(value)
            else:
                getattr(there, reader)("box", "key")
            rig.rest()
            assert any(lost <= store.objects.keys() for store in rig.stores[3:])
            rig.behave("down", 0)
            assert rig.open().get("box", "key").value == value
            rig.behave("ok")


# -- what is overwritten --------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", PLACES)
def test_what_is_overwritten_is_deleted(wish: str) -> None:
    with Rig(wish) as rig:
        for value in (b"one", BIG, b"three"):
            rig.store.put("box", "key", value)
        rig.store.put("box", "key", b"four", PRESENT)
        rig.store.put("box", "key", b"five")
        rig.clear()
        (register,) = {name.rpartition("/")[0] for name in _keys(rig)} - {""}
        left = [name for name in _keys(rig) if name.startswith(register)]
        assert len(left) == (2 if wish == "clouds" else 1) * 5
        assert rig.open().get("box", "key").value == b"five"


def _keys(rig: Rig) -> list[str]:
    """The objects of the registers in the container, on all clouds."""
    rig.rest()
    prefix = rig.box
    return [name for store in rig.stores for name in store.objects if name.startswith(prefix)]


def test_nothing_is_deleted_before_it_is_time() -> None:
    moment = count()
    with Rig() as rig:
        rig.store.put("box", "key", b"one")
        rig.store.put("box", "key", b"two")
        waiting = list(rig.store.keys.overwritten._waiting)
        assert next(moment) == 0
        began = rig.engine.environment.boot_time()
        assert all(due > began + KEPT_SECONDS - 60 for due, _, _ in waiting)
        assert len(_keys(rig)) == 2 * 2 * 5


# -- what clouds lose -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", PLACES)
def test_what_a_cloud_has_lost_or_altered_is_put_back(wish: str) -> None:
    with Rig(wish) as rig:
        for key in ("big", "small", "whole"):
            rig.store.put("box", key, BIG if key == "big" else key.encode())
        rig.rest()
        lossy, liar = rig.stores[1].objects, rig.stores[3].objects
        mender = CloudMender(rig.open())
        held = {one.label: one for one in mender.held()}
        assert sorted(held) == ["box/big", "box/small", "box/whole"]
        for label in ("box/big", "box/small"):
            name = held[label].register.names.of_version(held[label].version)
            del lossy[name]
            liar[name] = bytes(len(liar[name]))
        assert mender.look_at(held["box/whole"], 1) is None
        for label in ("box/big", "box/small"):
            lost, altered = mender.look_at(held[label], 1), mender.look_at(held[label], 3)
            assert lost is not None and altered is not None
            assert (lost.kind, altered.kind) == ("missing", "corrupt")
            assert lost.what == f"the value of {label} (c1: no such object)"
            repairs = mender.mend(held[label], range(4))
            assert [(one.cloud, one.now_at, one.failure) for one in repairs] == [(1, 1, ""), (3, 3, "")]
        assert [mender.mend(one, range(4)) for one in held.values()] == [[], [], []]
        assert rig.bad() == set(), "a cloud that was away when a value was written has not lied"
        rig.behave("down", 0)
        assert rig.open().get("box", "big").value == BIG


@pytest.mark.parametrize("wish", PLACES)
def test_a_cloud_that_was_away_gets_what_was_written_without_it(wish: str) -> None:
    with Rig(wish, timing=HASTY) as rig:
        rig.store.put("box", "early", b"early")
        rig.rest()
        rig.behave("down", 1)
        for key in ("big", "small", "gone"):
            rig.store.put("box", key, BIG if key == "big" else b"")
        rig.store.delete("box", "gone")
        rig.store.tput({Key("box", "one"): b"1", Key("box", "other"): b"2"})
        rig.store.create_container("new")
        rig.rest()
        mender = CloudMender(rig.open())
        assert mender.fill(range(5), lambda: True) == {1}, "it does not answer"
        rig.behave("ok", 1)
        assert mender.fill({0, 2, 3, 4}, lambda: True) == {1}, "it may not be written to"
        with rig.counting() as asked:
            assert mender.fill(range(5), lambda: True) == set()
        assert asked["put"] == 2 * (5 + 1) if wish == "clouds" else asked["put"] <= 2 * (5 + 1)
        assert not any(found.short for found in rig.open().surveys())
        with rig.counting() as asked:
            mender.fill(range(5), lambda: True)
        assert "put" not in asked
        assert all(mender.look_at(held, 1) is None for held in mender.held())
        rig.behave("down", 0)
        assert rig.open().get("box", "big").value == BIG


def test_a_cloud_that_lacks_the_proof_alone_gets_it() -> None:
    with Rig() as rig:
        rig.store.put("box", "key", b"value")
        rig.rest()
        (held,) = CloudMender(rig.store).held()
        whole = dict(rig.stores[1].objects)
        version = held.register.names.of_version(held.version)
        for name in _keys(rig):
            if name != version:
                rig.stores[1].objects.pop(name, None)
        assert rig.stores[1].objects != whole
        assert CloudMender(rig.open()).fill(range(5), lambda: True) == set()
        assert rig.stores[1].objects == whole


def test_what_was_overwritten_in_between_is_not_put_there() -> None:
    with Rig() as rig:
        rig.behave("down", 1)
        rig.store.put("box", "key", b"one")
        rig.behave("ok", 1)
        rig.rest()
        (found,) = [one for survey in rig.store.surveys() for one in survey.short]
        rig.store.put("box", "key", b"two")
        with rig.counting() as asked:
            assert rig.store.keys.run("", found.register.fill(found.version, {1})) == {1}
        assert asked == {"list": 1}


def test_what_cannot_be_put_back_is_named() -> None:
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", BIG)
        rig.rest()
        mender = CloudMender(rig.store)
        (held,) = mender.held()
        name = held.register.names.of_version(held.version)
        del rig.stores[1].objects[name]
        rig.behave("full", 1)
        (repair,) = mender.mend(held, range(5))
        assert repair.now_at is None
        assert repair.failure.startswith("no space left")
        (repair,) = mender.mend(held, {0, 2, 3, 4})
        assert repair.failure == "no cloud can take it now"
        for store in rig.stores[2:]:
            del store.objects[name]
        assert {one.failure for one in mender.mend(held, range(5))} == {
            "too little of the value of box/key is left to rebuild it"
        }
        rig.store.put("box", "key", b"other")
        assert mender.mend(held, range(5)) == []
        assert mender.look_at(held, 2) is None


def test_lists_that_come_often_remember_what_is_overwritten_once() -> None:
    with Rig() as rig:
        for value in (b"one", b"two"):
            rig.store.put("box", "key", value)
        there = rig.open()
        for _ in range(5):
            there.list("box")
        assert len(there.keys.overwritten._waiting) == 1


# -- members that lie -----------------------------------------------------------------------------------


def damage(rig: Rig, container: bytes, key: str, metadata: bytes) -> None:
    """Write what no correct device writes, as a member can."""
    keys = rig.store.keys
    draft = keys.codec.draft(key, b"", b"", 0, 2, rig.place.clouds)
    sealed = keys.codec._sealer.seal(draft.write, metadata)
    head = struct.pack(">BHH", 1, len(metadata), len(sealed)) + sealed
    draft.size, draft.verifier, draft.objects = len(head), keys.names.verifier(head), lambda _: head
    keys.run("", keys._register(container, key).write(draft))


def test_what_a_member_damages_hides_no_other_key_and_no_other_container() -> None:
    with Rig() as rig:
        rig.store.put("box", "key", b"value")
        rig.store.create_container("other")
        known = rig.store._find("box")
        assert known is not None
        damage(rig, known.id, "damaged", b"no metadata")
        damage(rig, b"", "another", Metadata(0, "another", value=b"no id").encode())
        damage(rig, b"", "third", b"no metadata")
        there = rig.open()
        assert there.containers() == ["box", "other"]
        assert [one.key for one in there.list("box")] == ["key"]
        assert [one.label for one in CloudMender(there).held()] == ["box/key"]
        with pytest.raises(IntegrityError):
            there.get("box", "damaged")
        with pytest.raises(NoSuchContainerError):
            there.get("another", "key")
        there.put("box", "damaged", b"right")
        assert rig.store.get("box", "damaged").value == b"right"


@pytest.mark.parametrize("wish", PLACES)
@pytest.mark.parametrize("lacking", [0, 2, 4])
@pytest.mark.parametrize("objects", ["none that fit", "nonsense", "shares of two values"])
def test_what_a_member_names_hides_no_other_key_and_no_other_container(
    wish: str, lacking: int, objects: str
) -> None:
    """*lacking* clouds have not even the names."""
    with Rig(wish) as rig:
        rig.store.put("box", "key", b"value")
        known = rig.store._find("box")
        assert known is not None
        for container, key in ((known.id, "damaged"), (known.id, "key"), (b"", "another")):
            before = set(_all_names(rig))
            if objects == "nonsense":
                damage(rig, container, key, b"no metadata")
            elif objects == "none that fit":
                draft = rig.store.keys._draft(key, b"", b"", 0)
                draft.objects = lambda _: b"no object"
                rig.store.keys.run("", rig.store.keys._register(container, key).write(draft))
            else:
                _mix(rig, container, key)
            rig.rest()
            for store in rig.stores[:lacking]:
                for name in store.objects.keys() - before:
                    del store.objects[name]
        rig.store.put("box", "other", b"value")
        there = rig.open()
        assert {"other"} <= {one.key for one in there.list("box")} <= {"damaged", "key", "other"}
        assert "box" in there.containers()
        rig.behave("down", 4)
        assert {"other"} <= {one.key for one in rig.open().list("box")} <= {"damaged", "key", "other"}


def _mix(rig: Rig, container: bytes, key: str) -> None:
    """Write shares of two values, so that what a reader gets depends on whom it asks."""
    keys, place = rig.store.keys, rig.place
    draft = keys._draft(key, BIG, b"", 0)
    k = place.thresholds.k
    sealed = [keys.codec._sealer.seal(draft.write, value) for value in (BIG, BIG[::-1])]
    one, other = (split(k, len(place.clouds), each) for each in sealed)
    shares = [*one[:2], *other[2:]]
    facts = Shares(len(BIG), len(sealed[0]), place.clouds, tuple(map(keys.names.checksum, shares)))
    metadata = Metadata(0, key, shares=facts).encode()
    box = keys.codec._sealer.seal(draft.write, metadata)
    head = struct.pack(">BHH", 1, len(metadata), len(box)) + box
    draft.size, draft.verifier = len(head) + len(shares[0]), keys.names.verifier(head)
    draft.objects = lambda cloud: head + shares[cloud]
    keys.run("", keys._register(container, key).write(draft))


def _all_names(rig: Rig) -> list[str]:
    rig.rest()
    return [name for store in rig.stores for name in store.objects]


def test_a_list_that_cannot_see_a_key_is_refused() -> None:
    """A value that may be there is not left out because clouds are away."""
    with Rig(timing=HASTY) as rig:
        rig.store.put("box", "key", b"value")
        rig.rest()
        prefix = rig.box
        for store in rig.stores[:2]:
            for name in [name for name in store.objects if name.startswith(prefix) and store.objects[name]]:
                del store.objects[name]
        there = rig.open()
        assert there.has_container("box")
        for store in rig.stores[2:]:
            store.before_get = _fail
        with pytest.raises(HybrisError, match="cannot be listed"):
            there.list("box")


def _fail() -> None:
    raise TransientError("fake://", "get", "", "connection reset")


# -- room, and slow lines -------------------------------------------------------------------------------


def test_large_values_are_read_only_when_there_is_room_for_them() -> None:
    with Rig() as rig, ThreadPoolExecutor(1) as pool:
        rig.store.put("box", "key", os.urandom(4 << 20))
        rig.rest()
        memory = rig.store.keys.rooms._memory
        with rig.store.keys.rooms.taken([1 << 30]):
            reading = pool.submit(rig.store.get, "box", "key")
            until(lambda: memory._line, "the read to wait for room", 30)
            assert not any("get_range" in store.requests[-3:] for store in rig.stores)
        assert len(reading.result().value) == 4 << 20


def test_what_takes_long_is_read_while_it_moves(tmp_path: Path) -> None:
    """30 MB at 3.6 Mbit/s must not be a value that can be stored and never read."""
    patience, rate = 2.0, 500_000
    value = os.urandom(int(2 * patience * rate))
    with wsgidav(tmp_path) as server, FaultyProxy(server.address) as proxy:
        far = WebDavStore(server.url(authority=proxy.authority), FixedCredentials(server.secrets))
        far.initialise()
        environment = Environment(limits=Limits(RunnerLimits(patience)))
        with closing(Engine([Cloud(0, "far", far)], 0, SEALER, TABLES, environment=environment)) as engine:
            place = CloudPlace.wished("clouds", [0], 0)
            with closing(
                CloudStore(place, Runner(engine.clouds, engine.environment), KEY, OneKey(b"e" * 32), ANYBODY)
            ) as store:
                store.create_container("box")
                store.put("box", "key", value)
                proxy.answer_rate = rate
                assert store.get("box", "key").value == value
                assert engine.health()[0].state == "ok"
