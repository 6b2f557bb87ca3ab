"""Conditional looks and listings through clouds that fail, hang and lie."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from backends.file import FileStore
from backends.store import Page
from hybrisfs.dispersal.engine import Cloud, Engine
from hybrisfs.dispersal.probe import Changed, Failed, Look, Marker, Missing, Unchanged
from hybrisfs.environment import SYSTEM
from tests.adversary import Fault, FaultyStore
from tests.dispersal.fakes import CALM, HASTY, SEALER, TABLES, Behaviour, Cluster, FakeStore

NAME = "heads/one"


def look(cluster: Cluster, *clouds: int, tag: str | None = None) -> dict[int, object]:
    looks = [Look(NAME, cloud, tag) for cloud in clouds]
    found = cluster.engine.poll_objects(looks, limit=100, timeout=5.0)
    assert set(found) == set(looks)
    return {one.cloud: polled for one, polled in found.items()}


class Folders:
    """An engine over local folders that misbehave on demand."""

    def __init__(self, base: Path) -> None:
        self.stores = []
        for number in range(3):
            store = FaultyStore(FileStore(f"file://{base}/{number}"), number)
            store.initialise()
            self.stores.append(store)
        clouds = [Cloud(number, f"c{number}", store) for number, store in enumerate(self.stores)]
        self.engine = Engine(clouds, 1, SEALER, TABLES, timing=CALM, environment=SYSTEM)

    def look(self, *tags: str | None) -> list[object]:
        looks = [Look(NAME, cloud, tag) for cloud, tag in enumerate(tags)]
        found = self.engine.poll_objects(looks, limit=100, timeout=5.0)
        return [found[one] for one in looks]


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_a_look_tells_whether_an_object_is_new_the_same_or_not_there(folders: Folders) -> None:
    folders.stores[0].put(NAME, b"first")
    folders.stores[1].put(NAME, b"second")
    first, second, third = folders.look(None, None, None)
    assert isinstance(first, Changed) and first.data == b"first"
    assert isinstance(second, Changed) and second.data == b"second"
    assert third == Missing()
    folders.stores[1].put(NAME, b"third")
    again = folders.look(first.tag, second.tag, None)
    assert again[0] == Unchanged()
    assert isinstance(again[1], Changed) and again[1].data == b"third"
    folders.engine.close()


def test_what_cannot_be_the_object_is_wrong_and_what_does_not_answer_failed(folders: Folders) -> None:
    folders.stores[0].put(NAME, bytes(101))
    folders.stores[1].put(NAME, b"content")
    folders.stores[1].faults = [Fault("fail")]
    large, down, _ = folders.look(None, None, None)
    assert isinstance(large, Failed) and large.wrong
    assert isinstance(down, Failed) and not down.wrong and "injected failure" in down.reason
    folders.engine.close()


@pytest.mark.parametrize("behaviour", ["down", "auth", "crash"])
def test_clouds_that_fail_do_not_keep_the_others_from_answering(behaviour: Behaviour) -> None:
    with Cluster(1, 1, 3) as cluster:
        cluster.engine.put_everywhere(NAME, b"head")
        cluster.behave(behaviour, 1)
        found = look(cluster, 0, 1, 2)
        assert isinstance(found[1], Failed)
        assert found[0] == found[2] == Changed(b"head", "tag")


def test_a_cloud_that_hangs_is_waited_for_only_while_nobody_else_has_answered() -> None:
    with Cluster(1, 1, 3, HASTY) as cluster:
        cluster.engine.put_everywhere(NAME, b"head")
        cluster.behave("hang", 1)
        found = look(cluster, 0, 1)
        assert isinstance(found[0], Changed)
        assert found[1] == Failed("has not answered in its usual time")
        assert cluster.engine.poll_objects([Look(NAME, 1, None)], limit=100, timeout=0.05)[
            Look(NAME, 1, None)
        ] == Failed("no answer within 0 s: the request waited behind others")
        assert not isinstance(look(cluster, 0)[0], Failed)


def test_a_hung_cloud_is_entered_once_for_a_name_however_often_it_is_looked_at() -> None:
    with Cluster(1, 1, 2, HASTY) as cluster:
        cluster.engine.put_everywhere(NAME, b"head")
        cluster.behave("hang", 1)
        for _ in range(5):
            look(cluster, 0, 1)
        assert cluster.stores[1].hanging.acquire(timeout=5)
        assert not cluster.stores[1].hanging.acquire(blocking=False)
        cluster.behave("ok", 1)
        cluster.stores[1].released.set()
        assert isinstance(look(cluster, 1)[1], Changed)


def test_a_look_does_not_drop_a_put_that_still_waits() -> None:
    """The put of a head goes on in the background after it returned; looking at the head comes later."""
    with Cluster(0, 1, 2, HASTY) as cluster:
        store = cluster.stores[1]
        cluster.behave("hang", 1)
        cluster.engine.put_everywhere(NAME, b"old")
        assert store.hanging.acquire(timeout=5)
        cluster.engine.put_everywhere(NAME, b"new")  # queued behind the one that hangs
        look(cluster, 0, 1)
        cluster.behave("ok", 1)
        store.released.set()
        cluster.engine.put_object("fence", b"", 2)
        deadline = time.monotonic() + 60.0
        while store.objects.get(NAME) != b"new":
            assert time.monotonic() < deadline, "the put was dropped"
            look(cluster, 1)


def test_a_cloud_that_is_not_configured_any_more_is_an_answer_too() -> None:
    with Cluster(1, 1, 2) as cluster:
        assert look(cluster, 7) == {7: Failed("is no longer configured")}


def test_closing_the_engine_ends_a_look() -> None:
    with Cluster(1, 1, 2) as cluster:
        cluster.behave("hang")
        found: list[dict[int, object]] = []
        thread = threading.Thread(target=lambda: found.append(look(cluster, 0, 1)))
        thread.start()
        assert cluster.stores[0].hanging.acquire(timeout=5)
        cluster.stores[0].released.set()
        cluster.stores[1].released.set()
        cluster.engine.close()
        thread.join(5)
        assert found and all(isinstance(one, Failed | Missing) for one in found[0].values())


def test_a_listing_joins_what_all_clouds_tell() -> None:
    with Cluster(1, 1, 3) as cluster:
        for number, store in enumerate(cluster.stores):
            store.objects = {f"log/a/{n:04}": b"" for n in range(number, 1500, 2)} | {"other/x": b""}
        cluster.behave("down", 2)
        listing = cluster.engine.list_objects("log/a/", most=5000, timeout=5.0)
        assert listing.names == tuple(f"log/a/{n:04}" for n in range(1500))
        assert listing.answered == {0, 1}


def test_a_listing_is_bounded() -> None:
    with Cluster(1, 1, 2) as cluster:
        cluster.stores[0].objects = {f"log/a/{n:04}": b"" for n in range(2500)}
        listing = cluster.engine.list_objects("log/a/", most=1200, timeout=5.0)
        assert listing.names == tuple(f"log/a/{n:04}" for n in range(1200))


@pytest.mark.parametrize("f", [0, 1])
def test_a_listing_waits_for_a_cloud_that_hangs_only_while_too_few_have_answered(f: int) -> None:
    with Cluster(f, 1, 2, HASTY) as cluster:
        cluster.stores[0].objects = {"log/a/1": b""}
        cluster.behave("hang", 1)
        # With f = 1 one that waited for both would be ended by the limit for a whole test only.
        listing = cluster.engine.list_objects("log/a/", most=10, timeout=0.1 if f == 0 else 3600.0)
        assert listing.names == ("log/a/1",)
        assert listing.answered == frozenset({0})


class _Circling(FakeStore):
    """Its listings never end."""

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Page:
        return Page(super().list("log/").entries, more=True)  # counts as a request


def test_a_cloud_whose_listing_goes_round_in_circles_does_not_hang_us() -> None:
    with Cluster(1, 1, 1, kind=_Circling) as cluster:
        cluster.stores[0].objects = {"log/a/1": b"", "log/b/2": b""}
        assert cluster.engine.list_objects("log/a/", most=100, timeout=5.0).names == ("log/a/1",)
        assert cluster.stores[0].requests.count("list") <= 2


def test_an_accused_cloud_is_lying_until_the_object_is_right_again() -> None:
    with Cluster(1, 1, 2) as cluster:
        cluster.engine.put_everywhere(NAME, b"old")

        def recheck(data: bytes) -> None:
            if data != b"new":
                raise ValueError("still old")

        cluster.engine.accuse(0, NAME, "is an earlier one", 100, recheck)
        assert cluster.states() == {"c0": "lying"}
        assert "is an earlier one" in next(one.reason for one in cluster.engine.health() if one.number == 0)
        cluster.engine.put_everywhere(NAME, b"new")
        cluster.clock.advance(1000)
        cluster.engine.probe(Marker(NAME, b"new"))
        assert cluster.states() == {}
        cluster.engine.accuse(9, NAME, "is not configured", 100, recheck)
