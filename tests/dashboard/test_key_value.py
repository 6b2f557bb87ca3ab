"""The page shows containers and keys, makes containers, and forgets services."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dashboard.actions import ACTIONS
from hybrisfs.api.key_value import ON_DEVICE, Place
from hybrisfs.api.objects import ObjectAttributes, encode
from hybrisfs.daemon.service import Daemon
from hybrisfs.errors import HybrisError
from hybrisfs.kv.containers import Key
from hybrisfs.kv.errors import NoSuchContainerError
from hybrisfs.kv.log_moves import MovedContainer
from hybrisfs.kv.migrate import Moved
from hybrisfs.kv.rebuild import Orphans, RebuiltMetadata
from hybrisfs.kv.store import KeyValueStore
from tests.daemon.fake import FakeVolumes
from tests.dashboard.conftest import Page
from tests.kv.rig import CONTAINER, Rig

URL = "/api/volumes/photos"
ETCD = "etcd://db1,db2"
SILENT = "etcd://db3"


@dataclass
class Places:
    """The store of the rig, and services: one that answers and one that does not."""

    rig: Rig
    services: dict[str, list[str]] = field(default_factory=lambda: {ETCD: ["shared"]})
    silent: list[str] = field(default_factory=lambda: [SILENT])

    def of(self, container: str) -> KeyValueStore:
        if container not in self.rig.store.containers():
            raise NoSuchContainerError(container, self.rig.store.containers())
        return self.rig.store

    def create_container(self, container: str, place: str | None) -> str:
        if place in (None, ON_DEVICE):
            self.rig.store.create_container(container)
        else:
            self.services.setdefault(place, []).append(container)
        return place or ON_DEVICE

    def containers(self) -> list[Place]:
        return [
            Place(ON_DEVICE, list(self.rig.store.containers()), ""),
            *(Place(url, names, "") for url, names in self.services.items()),
            *(Place(url, [], f"the etcd at {url} does not answer") for url in self.silent),
        ]

    def only_here(self) -> list[str]:
        return []

    def delete_container(self, container: str) -> None:
        raise HybrisError("nobody asks for that here")

    def migrate(self, container: str, place: str, step: Callable[[str, int, int], None]) -> Moved:
        raise HybrisError("nobody asks for that here")

    def session(self, seen: str | None, patience: float) -> str:
        raise HybrisError("nobody asks for that here")

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        return []

    def moved(self) -> Sequence[MovedContainer]:
        return []

    def forget_service(self, url: str) -> None:
        self.silent.remove(url)

    def orphans(self, trusted: Collection[int]) -> Orphans:
        raise HybrisError("nobody asks for that here")

    def rebuild(self) -> tuple[Path, RebuiltMetadata]:
        raise HybrisError("nobody asks for that here")


@pytest.fixture
def places(page: Page, served: Daemon, volumes: FakeVolumes, tmp_path: Path) -> Iterator[Places]:
    served.start()
    with Rig(tmp_path) as rig:
        one = Places(rig)
        volumes.opened["photos"].key_values = one
        yield one


def test_containers_come_with_where_their_metadata_are(page: Page, places: Places) -> None:
    assert page.facts(f"{URL}/containers") == {
        "places": [
            {"metadata": "device", "containers": [CONTAINER], "trouble": "", "where": "device"},
            {"metadata": ETCD, "containers": ["shared"], "trouble": "", "where": ETCD},
            {
                "metadata": SILENT,
                "containers": [],
                "trouble": f"the etcd at {SILENT} does not answer",
                "where": SILENT,
            },
        ]
    }


def test_keys_and_what_is_known_of_them(page: Page, places: Places) -> None:
    places.rig.put("a/<b>", b"first")
    places.rig.put("a/<b>", b"second value")
    answer = page.post(f"{URL}/keys", {"container": CONTAINER}).json()
    [key] = answer["keys"]
    assert key == {"key": "a/<b>", "size": 12, "version": 2, "written": places.rig.clock()}
    assert answer["more"] is False


def test_an_object_in_parts_has_the_size_of_its_parts(page: Page, places: Places) -> None:
    said = ObjectAttributes("ab" * 16, {}, {}, "cd" * 16, 5_000_000_000)
    places.rig.store.put(CONTAINER, "large", b"the list", attributes=encode(said))
    whole = ObjectAttributes("ab" * 16, {}, {})
    places.rig.store.put(CONTAINER, "small", b"the value", attributes=encode(whole))
    keys = page.post(f"{URL}/keys", {"container": CONTAINER}).json()["keys"]
    assert [one["size"] for one in keys] == [5_000_000_000, 9]


def test_keys_come_in_pages(page: Page, places: Places) -> None:
    for number in range(200):
        places.rig.put(f"{number:03}", b"")
    first = page.post(f"{URL}/keys", {"container": CONTAINER, "prefix": "", "after": None}).json()
    assert [one["key"] for one in first["keys"]] == [f"{number:03}" for number in range(100)]
    assert first["more"] is True
    second = page.post(f"{URL}/keys", {"container": CONTAINER, "after": "099"}).json()
    assert [one["key"] for one in second["keys"]] == [f"{number:03}" for number in range(100, 200)]
    assert second["more"] is False, "nothing follows a page that just fits"


def test_keys_are_filtered_by_their_beginning(page: Page, places: Places) -> None:
    for key in ("apple", "pear", "pea", "plum"):
        places.rig.put(key, b"")
    keys = page.post(f"{URL}/keys", {"container": CONTAINER, "prefix": "pea"}).json()["keys"]
    assert [one["key"] for one in keys] == ["pea", "pear"]
    assert page.post(f"{URL}/keys", {"container": CONTAINER, "prefix": "x"}).json()["keys"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"container": 7}, 400),
        ({"container": CONTAINER, "prefix": ["a"]}, 400),
        ({"container": CONTAINER, "after": 7}, 400),
        ({"container": "nothing"}, 409),
    ],
)
def test_wrong_questions_are_refused(page: Page, places: Places, body: object, status: int) -> None:
    answer = page.post(f"{URL}/keys", body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]


def test_the_page_chooses_neither_volume_nor_number(page: Page, places: Places) -> None:
    places.rig.put("one", b"")
    places.rig.put("two", b"")
    body = {"container": CONTAINER, "name": "music", "limit": 1}
    assert len(page.post(f"{URL}/keys", body).json()["keys"]) == 2


def test_containers_are_made(page: Page, places: Places) -> None:
    do = f"{URL}/do/create-container"
    assert page.post(do, {"container": "here", "metadata": "device"}).status_code == 200
    assert page.post(do, {"container": "there", "metadata": ETCD}).status_code == 200
    assert set(places.rig.store.containers()) == {CONTAINER, "here"}
    assert places.services == {ETCD: ["shared", "there"]}
    again = page.post(do, {"container": "here"})
    assert (again.status_code, again.json()["error"]) == (409, "there is a container 'here' already")
    assert page.post(do, {"container": "x", "path": "/etc/passwd"}).status_code == 400


def test_a_service_is_forgotten(page: Page, places: Places) -> None:
    assert page.post(f"{URL}/do/forget-service", {"metadata": SILENT}).status_code == 200
    assert [one["metadata"] for one in page.facts(f"{URL}/containers")["places"]] == ["device", ETCD]


def test_values_are_neither_read_nor_changed() -> None:
    commands = {action.request.command for action in ACTIONS.values()}
    assert {one for one in commands if one.startswith("kv")} == {"kv create", "kv forget"}
