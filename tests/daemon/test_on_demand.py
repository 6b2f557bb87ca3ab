"""The daemon finds the volume of each path, and passes on what is asked."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from hybrisfs.daemon.service import Daemon
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.wire import Message
from tests.daemon.fake import FakeVolumes
from tests.daemon.test_service import call, mount


@pytest.fixture
def volumes() -> FakeVolumes:
    return FakeVolumes("photos", "music")


@pytest.fixture
def daemon(home: Home, volumes: FakeVolumes, tmp_path: Path) -> Daemon:
    one = Daemon(home, volumes, SYSTEM)
    mount(one, tmp_path / "photos", "photos")
    mount(one, tmp_path / "photos" / "music", "music")
    return one


def test_each_path_goes_to_the_volume_mounted_nearest_above(
    daemon: Daemon, volumes: FakeVolumes, tmp_path: Path
) -> None:
    inside, nested, root = (str(tmp_path / one) for one in ("photos/2026/x", "photos/music/song", "photos"))
    facts = call(daemon, "pin", paths=[inside, nested, root])
    assert [(one["path"], one["volume"]) for one in facts["paths"]] == [
        (inside, "photos"),
        (nested, "music"),
        (root, "photos"),
    ]
    assert facts["done"] is False
    assert volumes.opened["photos"].content.pinned == [PurePath("2026/x"), PurePath()]
    assert volumes.opened["music"].content.pinned == [PurePath("song")]
    call(daemon, "unpin", paths=[nested])
    assert volumes.opened["music"].content.pinned == []
    listed = call(daemon, "pin list")["pins"]
    assert [(one["volume"], one["path"]) for one in listed] == [("photos", inside), ("photos", root)]
    assert call(daemon, "evict", paths=[inside])["paths"] == [
        {
            "path": inside,
            "volume": "photos",
            "freed_bytes": 3_000_000,
            "pending_bytes": 0,
            "pinned_bytes": 0,
            "copies_bytes": 0,
        }
    ]


def test_pins_of_a_volume_that_is_not_mounted(daemon: Daemon, tmp_path: Path) -> None:
    call(daemon, "pin", paths=[str(tmp_path / "photos" / "x")])
    call(daemon, "umount", target="photos", directory="/nowhere")
    [one] = call(daemon, "pin list")["pins"]
    assert (one["volume"], one["inside"], one["path"]) == ("photos", "x", None)


def test_waiting(daemon: Daemon, volumes: FakeVolumes, tmp_path: Path) -> None:
    paths = [str(tmp_path / "photos" / "a"), str(tmp_path / "photos" / "b")]
    steps: list[Message] = []
    asked = {"paths": paths, "wait": True, "timeout": 0}
    volumes.opened["photos"].content.trouble = "the clouds are down"
    facts = daemon.handle("pin", asked, steps.append)
    assert (facts["done"], facts["problem"]) == (False, "the clouds are down")
    assert steps == [{"done": 4_000_000, "total": 6_000_000}]
    volumes.opened["photos"].content.release.set()
    assert daemon.handle("pin", asked, steps.append)["done"] is True


def test_paths_elsewhere(daemon: Daemon, volumes: FakeVolumes, tmp_path: Path) -> None:
    for command in ("pin", "unpin", "evict"):
        with pytest.raises(
            HybrisError, match=rf"{tmp_path}/photosets is in no mounted volume\nMounted are: "
        ):
            call(daemon, command, paths=[str(tmp_path / "photos"), str(tmp_path / "photosets")])
    assert volumes.opened["photos"].content.pinned == []
    for paths in (["relative"], "text", [7], None):
        with pytest.raises(UsageError):
            call(daemon, "pin", paths=paths)
