"""Values that are verified, rebuilt, and written anew elsewhere, whatever clouds and clients do meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.kv.errors import NoSuchKeyError
from hybrisfs.kv.mend import ValueMender
from hybrisfs.kv.metadata import Change
from hybrisfs.kv.record import KeyMetadata, Place
from hybrisfs.kv.rmds import DeviceMetadata, DeviceStore
from hybrisfs.kv.values import Uploader, describe
from tests.dispersal.fakes import Behaviour
from tests.kv.rig import CONTAINER, KEY, LONG, UNHURRIED, Rig

LARGE = os.urandom(9 << 17)  # above the threshold of erasure coding
CODES = [(1, 1, 4, b"small"), (1, 2, 5, LARGE), (2, 2, 7, LARGE)]


class Mending:
    """A rig, and what looks after its values."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.store = rig.store
        self.mender = ValueMender(rig.store, rig.cluster.engine.upkeep)

    def place(self, key: str) -> Place:
        return self.store.metadata.container(CONTAINER), key.encode()

    def entry(self, key: str) -> KeyMetadata:
        entry = self.store.metadata.read(self.place(key))
        assert entry is not None
        return entry

    def leave(self, cloud: int, key: str = "a") -> str | None:
        self.rig.cluster.engine.arrange([cloud], 1)
        return self.mender.rewrite(self.place(key), lambda entry: cloud in entry.placement)

    def mend(self, key: str = "a", *, move: bool = False) -> dict[int, tuple[str, int | None]]:
        """What was wrong by cloud, and where it is now."""
        everywhere = range(len(self.rig.cluster.stores))
        repairs = self.mender.mend(self.place(key), self.entry(key), writable=everywhere, move=move)
        return {one.cloud: (one.finding.kind, one.now_at) for one in repairs}

    def assert_sound(self) -> None:
        """The clouds hold what the metadata name, all of it right, and nothing else."""
        self.store.collector.collect()
        named: list[set[str]] = [set() for _ in self.rig.cluster.stores]
        for found in self.store.metadata.values():
            assert found.entry is not None
            stored = describe(found.entry, self.store.sealer, "")
            for index, cloud in enumerate(stored.placement):
                name = stored.name(index)
                named[cloud].add(name)
                stored.verify(index, self.rig.cluster.stores[cloud].objects[name])
        assert self.rig.objects() == named
        held = [self.store.metadata.held(cloud) for cloud in range(len(named))]
        counted = [
            sum(cloud in one.entry.placement for one in self.store.metadata.values() if one.entry)
            for cloud in range(len(named))
        ]
        assert held == counted


@pytest.mark.parametrize(("f", "k", "size", "value"), CODES, ids=["copies", "f1k2", "f2k2"])
def test_a_value_leaves_a_cloud_and_is_the_same_value(
    tmp_path: Path, f: int, k: int, size: int, value: bytes
) -> None:
    with Rig(tmp_path, f, k, size, cache_bytes=16 << 20) as rig:
        mending = Mending(rig)
        rig.put("a", value)
        before, gets = mending.entry("a"), rig.gets()
        cloud = before.placement[0]
        assert mending.store.metadata.held(cloud) == 1
        assert mending.leave(cloud) is None
        after = mending.entry("a")
        assert cloud not in after.placement
        assert after.timestamp == before.timestamp
        gets = rig.gets()
        assert rig.get("a") == value
        assert rig.gets() == gets  # what was cached is still the newest
        mending.assert_sound()
        assert mending.leave(cloud) is None
        assert mending.entry("a") == after


def overwrite(store: DeviceStore) -> None:
    store.put(CONTAINER, "a", b"newer")


def delete(store: DeviceStore) -> None:
    store.delete(CONTAINER, "a")


def delete_and_write(store: DeviceStore) -> None:
    store.delete(CONTAINER, "a")
    store.put(CONTAINER, "a", b"newer")


@pytest.mark.parametrize("change", [overwrite, delete, delete_and_write])
@pytest.mark.parametrize("moment", ["before it is read", "before it is moved"])
def test_who_writes_meanwhile_wins(
    tmp_path: Path, change: Callable[[DeviceStore], None], moment: str
) -> None:
    with Rig(tmp_path, size=4) as rig:
        mending = Mending(rig)
        rig.put("a", b"older")
        cloud = mending.entry("a").placement[0]
        first = threading.Lock()

        def late() -> None:
            if first.acquire(blocking=False):
                change(rig.store)

        for store in rig.cluster.stores:
            if moment == "before it is read":
                store.before_get = late
            else:
                store.after_put = late
        assert mending.leave(cloud) is None
        assert first.locked()
        if change is delete:
            with pytest.raises(NoSuchKeyError):
                rig.get("a")
        else:
            assert rig.get("a") == b"newer"
        mending.assert_sound()


def test_a_write_that_began_before_the_move_wins_over_it(tmp_path: Path) -> None:
    """Two puts of one moment, and the earlier is moved meanwhile: the timestamps decide as if it had not."""
    with Rig(tmp_path, size=4) as rig:
        mending = Mending(rig)
        metadata = rig.store.metadata
        first, second = metadata.new_write(), metadata.new_write()
        for write in (first, second):
            rig.store.collector.begin([write])
        entries = rig.store._store([rig.store.uploader.plan("a", n, b"%d" % n) for n in (first, second)])
        one, other = (entry._replace(sn=1) for entry in entries)
        assert metadata.update([Change(mending.place("a"), one)])
        assert mending.leave(one.placement[0]) is None
        assert mending.entry("a").moved > second
        assert metadata.update([Change(mending.place("a"), other)])
        rig.store.collector.end([first, second])
        assert rig.get("a") == b"%d" % second
        mending.assert_sound()


@pytest.mark.parametrize(("f", "k", "size", "value"), CODES, ids=["copies", "f1k2", "f2k2"])
@pytest.mark.parametrize("harm", ["missing", "corrupt", "truncated", "another value's"])
def test_what_is_wrong_is_named_and_put_back(
    tmp_path: Path, f: int, k: int, size: int, value: bytes, harm: str
) -> None:
    with Rig(tmp_path, f, k, size) as rig:
        mending = Mending(rig)
        rig.put("a", value)
        rig.put("b", b"other")
        entry = mending.entry("a")
        assert mending.mend() == {}
        for index, cloud in list(enumerate(entry.placement))[:f]:
            objects, name = (
                rig.cluster.stores[cloud].objects,
                describe(entry, rig.store.sealer, "").name(index),
            )
            match harm:
                case "missing":
                    del objects[name]
                case "corrupt":
                    objects[name] = bytes(byte ^ 1 for byte in objects[name])
                case "truncated":
                    objects[name] = objects[name][:-1]
                case _:
                    objects[name] = rig.store.sealer.seal(99, value)[: len(objects[name])]
        kind = "missing" if harm == "missing" else "corrupt"
        bad = entry.placement[:f]
        for index, cloud in enumerate(bad):
            finding = mending.mender.look_at(mending.place("a"), entry, index)
            assert finding is not None and finding.kind == kind
            assert cloud in bad
        assert mending.mend() == {cloud: (kind, cloud) for cloud in bad}
        assert mending.mend() == {}
        assert mending.entry("a") == entry
        assert rig.cluster.states() == {}
        mending.assert_sound()


@pytest.mark.parametrize("behaviour", ["down", "missing", "corrupt"])
def test_a_share_that_cannot_be_put_back_goes_elsewhere(tmp_path: Path, behaviour: Behaviour) -> None:
    with Rig(tmp_path, size=4) as rig:
        mending = Mending(rig)
        rig.put("a", b"value")
        bad = mending.entry("a").placement[0]
        rig.cluster.behave(behaviour, bad)
        assert [now for _, now in mending.mend(move=False).values()] == [None]
        ((cloud, (_, now)),) = mending.mend(move=True).items()
        assert cloud == bad and now not in (None, bad)
        assert bad not in mending.entry("a").placement
        assert rig.get("a") == b"value"
        rig.release()
        rig.cluster.clock.advance(LONG)  # it is asked again
        mending.assert_sound()


def test_what_nobody_can_rebuild_is_said(tmp_path: Path) -> None:
    with Rig(tmp_path, mend_timeout=0.1) as rig:
        mending = Mending(rig)
        rig.put("a", b"value")
        for store in rig.cluster.stores:
            store.objects.clear()
        assert [now for _, now in mending.mend(move=True).values()] == [None, None]
        trouble = mending.mender.rewrite(mending.place("a"), lambda entry: True)
        assert trouble is not None and "cannot be read" in trouble


def test_what_is_deleted_meanwhile_is_nobodys_fault(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        mending = Mending(rig)
        rig.put("a", b"value")
        place, entry = mending.place("a"), mending.entry("a")
        delete(rig.store)
        rig.store.collector.collect()
        assert mending.mender.look_at(place, entry, 0) is None
        assert mending.mender.mend(place, entry, writable=range(3), move=True) == []
        assert rig.cluster.states() == {}


@pytest.mark.parametrize("behaviour", ["missing", "corrupt"])
def test_a_target_that_keeps_nothing_is_found_out(tmp_path: Path, behaviour: Behaviour) -> None:
    """It acknowledges what it is sent, as quickly as any: what leaves another cloud does not rely on it."""
    with Rig(tmp_path, size=4) as rig:
        mending = Mending(rig)
        rig.put("a", b"value")
        first, second = mending.entry("a").placement
        liar, good = sorted({0, 1, 2, 3} - {first, second})
        rig.cluster.behave(behaviour, liar)
        assert mending.leave(first) is None
        assert "put" in rig.cluster.stores[liar].requests
        assert set(mending.entry("a").placement) == {second, good}
        rig.release()
        mending.assert_sound()


def test_other_codes_are_found_and_stored_anew(tmp_path: Path) -> None:
    with Rig(tmp_path, 1, 1, 6) as rig:
        mending = Mending(rig)
        rig.put("small", b"value")
        rig.put("large", LARGE)
        for code, small, large in (
            (Redundancy(1, 3), (1, 2), (3, 4)),
            (Redundancy(2, 2), (1, 3), (2, 4)),
            (Redundancy(1, 1), (1, 2), (1, 2)),
        ):
            rig.store.uploader.redundancy = code
            for key, wanted in (("small", small), ("large", large)):
                outdated = rig.store.uploader.is_outdated
                assert mending.mender.rewrite(mending.place(key), outdated) is None
                entry = mending.entry(key)
                assert (entry.k, len(entry.placement)) == wanted
                assert not outdated(entry)
            assert rig.get("small") == b"value"
            assert rig.get("large") == LARGE
            mending.assert_sound()


STEPS = [
    (DeviceMetadata, "intend", "before"),
    (DeviceMetadata, "intend", "after"),
    (Uploader, "upload", "after"),
    (DeviceMetadata, "move", "before"),
    (DeviceMetadata, "move", "after"),
]


@pytest.mark.parametrize(("owner", "method", "when"), STEPS, ids=lambda one: getattr(one, "__name__", one))
def test_killed_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, when: str
) -> None:
    """The next start finds the value, and nothing beside it stays on the clouds."""

    class Killed(BaseException):
        pass

    with Rig(tmp_path, size=4) as rig:
        mending = Mending(rig)
        rig.put("a", b"value")
        cloud = mending.entry("a").placement[0]
        real = getattr(owner, method)

        def killed(*arguments: object) -> object:
            if when == "after":
                real(*arguments)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(owner, method, killed)
            # What a program that is killed does no more: to say that its writes have ended.
            patch.setattr(rig.store.collector, "end", lambda writes: None)
            with pytest.raises(Killed):
                mending.leave(cloud)
        rig.store.close()
        rig.store = DeviceStore(
            rig.path, rig.cluster.engine.values, KEY, Redundancy(1, 1), environment=UNHURRIED
        )
        again = Mending(rig)
        assert rig.get("a") == b"value"
        again.assert_sound()
        assert again.leave(cloud) is None
        assert cloud not in again.entry("a").placement
        assert rig.get("a") == b"value"
        again.assert_sound()
