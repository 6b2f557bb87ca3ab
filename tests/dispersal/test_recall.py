"""Older versions of objects as candidates: asked for only when the present ones are missing or wrong."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from backends.errors import AuthError, CorruptError
from backends.store import Buffer
from backends.versions import MAX_VERSIONS, Policy, Version, outermost
from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable, IntegrityError, ObjectMissing
from hybrisfs.dispersal.share import MAX_SHARE, share_name
from hybrisfs.dispersal.upkeep import PackRebuild
from tests.dispersal.fakes import CODES, TABLES, Cluster, FakeStore

CHUNKS = [os.urandom(50_000), b"small", os.urandom(120_000)]


class KeepingStore(FakeStore):
    """A cloud that keeps what is deleted and overwritten."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.versions = Kept(self)
        self.kept: dict[str, list[bytes]] = {}

    def put(self, name: str, data: Buffer) -> None:
        super().put(name, data)
        self.kept.setdefault(name, []).append(bytes(data))


class Kept:
    """`asked` are the names that versions were listed of; they are not told while `denied`."""

    def __init__(self, store: KeepingStore) -> None:
        self._store = store
        self.asked: list[str] = []
        self.read = 0
        self.denied = False

    def names(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._store.kept if name.startswith(prefix)))

    def of(self, name: str, most: int = MAX_VERSIONS) -> tuple[Version, ...]:
        self.asked.append(name)
        if self.denied:
            raise AuthError("fake://", "versions", name, "access denied")
        kept = list(enumerate(self._store.kept.get(name, [])))[::-1]
        return outermost([Version(str(number), len(data)) for number, data in kept], most)

    def get(self, name: str, version: str, *, limit: int) -> bytes:
        self.read += 1
        data = self._store.kept[name][int(version)]
        if len(data) > limit:
            raise CorruptError("fake://", "get", name, "too long")
        return data

    def get_range(self, name: str, version: str, offset: int, length: int) -> bytes:
        data = self.get(name, version, limit=1 << 30)[offset : offset + length]
        if len(data) < length:
            raise CorruptError("fake://", "get_range", name, "ends early")
        return data

    def destroy(self, name: str) -> bool:
        raise AuthError("fake://", "destroy", name, "access denied")

    def policy(self) -> Policy:
        return Policy(True, 30)

    def keep(self, days: int) -> str:
        raise AuthError("fake://", "keep", "", "access denied")

    def stop_keeping(self) -> None:
        raise AuthError("fake://", "keep", "", "access denied")

    def may_change(self) -> bool | None:
        return False


def keeping(cluster: Cluster) -> list[KeepingStore]:
    return [store for store in cluster.stores if isinstance(store, KeepingStore)]


def asked(cluster: Cluster) -> int:
    return sum(len(store.versions.asked) for store in keeping(cluster))


def delete(store: KeepingStore, name: str) -> None:
    del store.objects[name]


def overwrite(store: KeepingStore, name: str) -> None:
    for _ in range(MAX_VERSIONS):
        store.put(name, os.urandom(len(store.objects[name])))


def cut(store: KeepingStore, name: str) -> None:
    store.put(name, b"")


HARM = [delete, overwrite, cut]


@pytest.fixture(params=CODES, ids=str)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    f, k, size = request.param
    return Cluster(f, k, size, kind=KeepingStore)


def harm(cluster: Cluster, how: Callable[[KeepingStore, str], None], most: int = 1 << 30) -> int:
    """Do that to what is on as many clouds; to how many objects it was done."""
    done = 0
    for store in keeping(cluster):
        names = [*store.objects]
        for name in names[:1] if done < most else ():
            how(store, name)
            done += 1
    return done


@pytest.mark.parametrize("how", HARM)
def test_chunks_are_read_from_older_versions(
    cluster: Cluster, how: Callable[[KeepingStore, str], None]
) -> None:
    with cluster:
        locations = cluster.write(CHUNKS)
        harm(cluster, how)
        assert cluster.engine.get_chunks(locations, timeout=30) == CHUNKS


def test_nothing_more_is_asked_for_while_enough_is_right(cluster: Cluster) -> None:
    with cluster:
        locations = cluster.write(CHUNKS)
        assert cluster.engine.get_chunks(locations, timeout=30) == CHUNKS
        harm(cluster, delete, cluster.f)
        assert cluster.engine.get_chunks(locations, timeout=30) == CHUNKS
        assert asked(cluster) == 0


def test_clouds_that_are_away_are_not_asked(cluster: Cluster) -> None:
    with cluster:
        locations = cluster.write(CHUNKS)
        cluster.behave("down")
        with pytest.raises(ChunkUnavailable):
            cluster.engine.get_chunks(locations, timeout=30)
        assert asked(cluster) == 0


def test_who_may_not_ask_holds_nothing_against_the_cloud(cluster: Cluster) -> None:
    with cluster:
        locations = cluster.write(CHUNKS)
        harm(cluster, delete)
        for store in keeping(cluster):
            store.versions.denied = True
        with pytest.raises(ChunkUnavailable):
            cluster.engine.get_chunks(locations, timeout=30)
        assert set(cluster.states().values()) == {"lying"}  # not "refusing"


def test_older_versions_have_to_be_right_as_well_and_are_bounded() -> None:
    with Cluster(1, 1, 3, kind=KeepingStore) as cluster:
        placement = cluster.engine.put_object("meta/1", b"good", 2)
        for number in placement:
            store = keeping(cluster)[number]
            store.kept["meta/1"].clear()
            for _ in range(MAX_VERSIONS + 5):
                store.put("meta/1", b"bad")
        with pytest.raises(CloudsUnavailable):
            cluster.engine.get_object("meta/1", 100, parse, placement)
        assert all(store.versions.read <= MAX_VERSIONS for store in keeping(cluster))


def parse(data: bytes) -> bytes:
    if data != b"good":
        raise IntegrityError("not good")
    return data


@pytest.mark.parametrize("how", HARM)
def test_objects_are_read_from_older_versions(how: Callable[[KeepingStore, str], None]) -> None:
    with Cluster(1, 1, 3, kind=KeepingStore) as cluster:
        placement = cluster.engine.put_object("meta/1", b"good", 2)
        harm(cluster, how)
        assert cluster.engine.get_object("meta/1", 100, parse, placement) == b"good"
        assert cluster.engine.get_object("meta/1", 100, parse) == b"good"


def test_what_must_be_fresh_is_not(cluster: Cluster) -> None:
    with cluster:
        cluster.engine.put_everywhere("heads/1", b"good")
        for store in keeping(cluster):
            store.objects.clear()
        with pytest.raises(ObjectMissing):
            cluster.engine.get_object("heads/1", 100, parse, older=False)
        assert asked(cluster) == 0


def test_shares_are_offered_for_repair(cluster: Cluster) -> None:
    with cluster:
        locations = cluster.write(CHUNKS)
        harm(cluster, overwrite)
        pack, placement = locations[0].pack_id, locations[0].placement
        rebuild = PackRebuild(pack, TABLES)
        upkeep = cluster.engine.upkeep
        for index, number in enumerate(placement):
            assert upkeep.gather_share(number, pack, index, rebuild) is not None

            def take(data: bytes, index: int = index) -> None:
                rebuild.take(index, data)

            assert upkeep.recall(number, share_name(pack, index), MAX_SHARE, take)
        assert rebuild.complete


def test_a_cloud_that_keeps_nothing_has_nothing_to_offer() -> None:
    with Cluster(1, 1, 3) as cluster:
        placement = cluster.engine.put_object("meta/1", b"good", 2)
        assert not cluster.engine.upkeep.recall(placement[0], "meta/1", 100, parse)
