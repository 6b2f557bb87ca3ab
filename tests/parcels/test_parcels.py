"""Files that are shared over a real S3 server, and opened by what anybody with the link has."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from backends.s3 import S3Store
from hybrisfs.api.parcels import Parcel
from hybrisfs.dispersal.cloud import Answer
from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.parcels.format import ID_SIZE, PIECE, record_name
from hybrisfs.parcels.parcels import Contents, Parcels
from tests.backends import servers
from tests.backends.servers import FixedCredentials, Server
from tests.system.deadline import until
from tests.volume.bucket_device import First, Other, everything
from tests.volume.device import Device

_LARGE = bytes(range(256)) * ((PIECE + 5_000_000) // 256)
_DAY = 86400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.versitygw(tmp_path_factory.mktemp("s3-server")) as server:
        yield server


@dataclass
class Rig:
    device: First
    stores: list[S3Store]

    def share(self, name: str, days: int = 7, cloud: str | None = None) -> Parcel:
        return self.device.volume.parcels.make(PurePath(name), days, cloud, lambda done, total: None)

    def days_later(self, days: float) -> None:
        """Let the time of day go on, and hours pass in which devices look for what is over."""
        self.device.around.ahead_ns += int(days * _DAY * 1e9)
        self.device.around.passed += 7 * 3600

    def objects(self) -> list[str]:
        """What there is of parcels on all clouds."""
        return [name for store in self.stores for name in everything(store, "parcels/")]


@pytest.fixture
def rig(tmp_path: Path, server: Server) -> Iterator[Rig]:
    urls = [server.url() for _ in range(3)]
    device = First(tmp_path / "first", urls, 1, 1, server.secrets)
    stores = [S3Store(url, FixedCredentials(server.secrets)) for url in urls]
    yield Rig(device, stores)
    device.close()
    for store in stores:
        store.close()


def fetched(url: str) -> tuple[bytes, str]:
    """What anybody gets, and of which type."""
    with urllib.request.urlopen(url.partition("#")[0], timeout=30) as answer:
        return answer.read(), answer.headers["content-type"]


def opened(link: str) -> tuple[str, bytes]:
    """What the page does: the name of the file, and its content."""
    document, kind = fetched(link)
    assert kind.startswith("text/html")
    key = urlsafe_b64decode(link.partition("#")[2] + "=")
    assert key not in document and link.partition("#")[2].encode() not in document
    found = re.search(rb'<script type="application/json" id="parcel">(.*)</script>', document)
    assert found is not None
    said = json.loads(found[1])

    def piece(number: int, data: bytes) -> bytes:
        return AESGCM(key).decrypt(number.to_bytes(12, "big"), data, b"hybrisfs parcel 1")

    head = json.loads(piece((1 << 64) - 1, b64decode(said["head"])))
    content = b"".join(piece(number, fetched(url)[0]) for number, url in enumerate(said["pieces"]))
    assert len(content) == head["size"] and len(said["pieces"]) == head["pieces"]
    return head["name"], content


@pytest.mark.parametrize("content", [b"", b"small", _LARGE], ids=["empty", "small", "large"])
def test_who_has_the_link_gets_the_file(rig: Rig, content: bytes) -> None:
    rig.device.write("a file é<>.txt", content)
    made = rig.share("a file é<>.txt")
    assert opened(made.link) == ("a file é<>.txt", content)
    [cloud] = [store for store in rig.stores if everything(store, "parcels/")]
    plain = [cloud.get(name, limit=1 << 30) for name in everything(cloud, "parcels/")]
    assert not any((content and content[:5] * 3 in one) or b"a file" in one for one in plain)


def test_later_changes_are_not_shared(rig: Rig) -> None:
    rig.device.write("file", b"first")
    made = rig.share("file")
    rig.device.write("file", b"second")
    assert opened(made.link)[1] == b"first"


def test_what_is_revoked_leads_nowhere_and_others_stay(rig: Rig) -> None:
    rig.device.write("file", b"content")
    first, second = rig.share("file"), rig.share("file", 1)
    parcels = rig.device.volume.parcels
    assert {one.id for one in parcels.all().parcels} == {first.id, second.id}
    with pytest.raises(UsageError, match="2 times"):
        parcels.revoke("file")
    for nothing in ("other", "", "/", first.id[:7]):
        with pytest.raises(UsageError):
            parcels.revoke(nothing)
    parcels.revoke(first.id[:8])
    with pytest.raises(urllib.error.HTTPError):
        fetched(first.link)
    assert opened(second.link)[1] == b"content"
    assert parcels.all().parcels == [second]
    parcels.revoke("file")
    assert rig.objects() == []


def test_another_device_lists_and_revokes(rig: Rig, tmp_path: Path, server: Server) -> None:
    rig.device.write("file", b"content")
    made = rig.share("file")
    other = Other(tmp_path / "other", rig.device, server.secrets)
    assert [(one.id, one.link) for one in other.volume.parcels.all().parcels] == [(made.id, made.link)]
    other.volume.parcels.revoke("file")
    other.close()
    assert rig.objects() == []


def test_what_is_over_is_deleted(rig: Rig) -> None:
    rig.device.write("file", b"content")
    rig.share("file", 1)
    second = rig.share("file", 2)
    parcels = rig.device.volume.parcels
    parcels.look_after()
    assert len(parcels.all().parcels) == 2
    rig.days_later(1.5)
    parcels.look_after()
    assert parcels.all().parcels == [second]

    def gone() -> bool:
        """To a request that is under way as days pass, its cloud seems to be down: the next look will do."""
        rig.days_later(1)
        parcels.look_after()
        return rig.objects() == []

    until(gone, "what is over to be deleted")


class _EndedError(Exception):
    pass


def test_what_is_broken_off_leaves_nothing(rig: Rig) -> None:
    rig.device.write("file", _LARGE)

    def tell(done: int, _: int) -> None:
        if done:
            assert rig.objects()
            raise _EndedError

    with pytest.raises(_EndedError):
        rig.device.volume.parcels.make(PurePath("file"), 7, None, tell)
    assert rig.objects() == []


def test_what_a_crash_leaves_is_shown_and_can_be_revoked(rig: Rig) -> None:
    rig.device.write("file", b"content")
    made = rig.share("file")
    for store in rig.stores:
        store.delete(f"parcels/{made.id}/page")
    parcels = rig.device.volume.parcels
    assert [one.whole for one in parcels.all().parcels] == [False]
    parcels.revoke("file")
    assert rig.objects() == []


def test_a_file_that_is_written_to_is_not_shared(rig: Rig) -> None:
    rig.device.write("file", _LARGE)

    def tell(done: int, _: int) -> None:
        if not done:
            rig.device.write("file", b"another")

    with pytest.raises(HybrisError, match="was changed"):
        rig.device.volume.parcels.make(PurePath("file"), 7, None, tell)
    assert rig.objects() == []


def test_what_others_put_there_is_left_alone(rig: Rig) -> None:
    foreign = "parcels/0123456789abcdef0123456789abcdef/record"
    rig.stores[0].put(foreign, b"no record")
    rig.stores[0].put("parcels/notes", b"of somebody")
    assert rig.device.volume.parcels.all().parcels == []
    rig.days_later(30)
    rig.device.volume.parcels.look_after()
    assert sorted(rig.objects()) == [foreign, "parcels/notes"]
    assert not [one for one in rig.device.volume.status(look=False).clouds if one.state == "lying"]


def test_the_cloud_can_be_chosen(rig: Rig) -> None:
    rig.device.write("file", b"content")
    names = [one.name for one in rig.device.volume.config.clouds]
    for number, name in enumerate(names):
        assert rig.share("file", cloud=name).cloud == name
        assert len(everything(rig.stores[number], "parcels/")) == 3
    with pytest.raises(UsageError, match="there is no cloud"):
        rig.share("file", cloud="other")


def test_folders_that_play_clouds_make_no_links(tmp_path: Path) -> None:
    device = Device(tmp_path)
    device.write("file", b"content")
    with pytest.raises(HybrisError, match="none of its clouds"):
        device.volume.parcels.make(PurePath("file"), 7, None, lambda done, total: None)
    with pytest.raises(UsageError, match="cannot make links"):
        device.volume.parcels.make(
            PurePath("file"), 7, device.volume.config.clouds[0].name, lambda done, total: None
        )
    assert device.volume.parcels.all().parcels == []
    device.close()


def test_a_cloud_that_makes_up_parcels_is_not_looked_at_for_long() -> None:
    """It answers late, too. Other work waits until the look is over, and so does the next cloud."""
    now, asked = [0.0], [0, 0]
    environment = Environment(monotonic=lambda: now[0])

    def read(cloud: int, name: str, limit: int) -> Answer[bytes]:
        asked[cloud] += 1
        now[0] += 1.0
        return Answer(None, None)

    names = [record_name(number.to_bytes(ID_SIZE)) for number in range(10_000)]
    upkeep = SimpleNamespace(all_signing=lambda: [0, 1], names=lambda *_: names, read=read)
    ground = SimpleNamespace(
        fs=SimpleNamespace(environment=environment), signals=SimpleNamespace(transfers_paused=False)
    )
    clouds: Any = SimpleNamespace(ground=ground, engine=SimpleNamespace(upkeep=upkeep))
    Parcels(clouds, lambda path, size: Contents(0, iter(()))).look_after()
    assert all(0 < count < 200 for count in asked)
