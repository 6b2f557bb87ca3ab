"""Pinning, unpinning and evicting by path, on an open volume."""

from __future__ import annotations

import os
import stat
from pathlib import PurePath

import pytest

from hybrisfs.api.files import Freed, Pin
from hybrisfs.api.status import PinnedContent
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.state.schema import ROOT_INO
from tests.tree.unlocked import unlocked
from tests.volume.device import PATIENCE, Device

MIB = 1 << 20


def ignore(done: int, total: int) -> None:
    """Progress that nobody looks at."""


@pytest.fixture
def album(device: Device) -> Device:
    """A device with music/song of 3 MiB and a file beside it; the clouds hold both, this device nothing."""
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        music = fs.make(tx, ROOT_INO, b"music", stat.S_IFDIR | 0o755, 1, 1)
        _, handle = fs.create(tx, music.ino, b"song", 0o644, 1, 1, os.O_WRONLY)
    device.write_at(handle, 0, os.urandom(3 * MIB))
    with fs.state.transaction() as tx:
        fs.release(tx, handle)
    device.write("beside", b"beside" * 1000)
    device.sync()
    device.volume.drop_cache()
    return device


def song(device: Device) -> int:
    """How many bytes of the song are here."""
    device.volume.committer.commit_now()
    (size,) = (
        unlocked(device.volume.fs)
        .execute(
            "SELECT total(c.length) FROM node n JOIN file_chunk f ON f.ino = n.ino "
            "JOIN chunk c ON c.number = f.chunk WHERE n.size = ? AND c.segment IS NOT NULL",
            (3 * MIB,),
        )
        .fetchone()
    )
    return int(size)


def test_pinning_fetches_and_keeps(album: Device) -> None:
    content = album.volume.content
    pinned = content.pin(PurePath("music"))
    assert (pinned.files, pinned.bytes) == (1, 3 * MIB)
    assert content.wait([PurePath("music")], PATIENCE, ignore)
    assert song(album) == 3 * MIB
    album.volume.drop_cache()
    assert song(album) == 3 * MIB
    album.reopen()
    album.volume.drop_cache()
    assert song(album) == 3 * MIB
    assert album.volume.content.pins() == [Pin(1, 3 * MIB, 0, "music")]


def test_evicting_what_is_pinned_and_what_is_not(album: Device) -> None:
    content = album.volume.content
    content.pin(PurePath("music"))
    assert content.wait([PurePath("music")], PATIENCE, ignore)
    assert content.evict(PurePath("music/song")) == Freed(0, 0, 3 * MIB, 0)
    content.unpin(PurePath("music"))
    assert content.evict(PurePath("music")) == Freed(3 * MIB, 0, 0, 0)
    assert song(album) == 0


def test_what_no_cloud_has_is_not_evicted(device: Device) -> None:
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in device.clouds]
    device.write("new", b"new" * 1000)
    found = device.volume.content.evict(PurePath("new"))
    assert found == Freed(0, 3000, 0, 0)
    assert device.read("new") == b"new" * 1000
    for cloud, folder in zip(device.clouds, away, strict=True):
        folder.rename(cloud)


def test_waiting_ends_with_the_time(album: Device) -> None:
    content = album.volume.content
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in album.clouds]
    seen: list[tuple[int, int]] = []
    content.pin(PurePath("music"))
    assert not content.wait([PurePath("music")], 0.0, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3 * MIB)]
    for cloud, folder in zip(album.clouds, away, strict=True):
        folder.rename(cloud)
    assert content.wait([PurePath("music")], PATIENCE, ignore)


def test_more_than_there_is_room_for_is_refused(album: Device) -> None:
    content = album.volume.content
    album.volume.fs.journal.budget = 4 * MIB
    content.pin(PurePath("beside"))
    album.volume.fs.journal.budget = 3 * MIB
    with pytest.raises(HybrisError, match=r"cannot pin music: that would be 3,151,728 bytes") as caught:
        content.pin(PurePath("music"))
    assert "6,000 are pinned already and at most 2,516,582 may be" in str(caught.value)
    assert "hybrisfs volume set --cache" in str(caught.value)
    assert [one.path for one in content.pins()] == ["beside"]
    content.pin(PurePath("beside"))  # it is already


def test_what_cannot_be_pinned_or_unpinned(album: Device) -> None:
    content = album.volume.content
    for path in ("nothing", "beside/deeper", "music/nothing"):
        with pytest.raises(HybrisError, match=rf"{path}: No such file"):
            content.pin(PurePath(path))
    with album.volume.fs.state.transaction() as tx:
        album.volume.fs.make(tx, ROOT_INO, b"link", stat.S_IFLNK | 0o777, 1, 1, target=b"beside")
    with pytest.raises(HybrisError, match="link has no content"):
        content.pin(PurePath("link"))
    with pytest.raises(UsageError, match="beside is not pinned"):
        content.unpin(PurePath("beside"))
    content.pin(PurePath("music"))
    with pytest.raises(UsageError, match="kept because music is pinned"):
        content.unpin(PurePath("music/song"))
    assert content.pins()


def test_status_tells_of_it(album: Device) -> None:
    nothing = PinnedContent(0, 0, 0, None)
    assert album.volume.status().pinned == nothing
    content = album.volume.content
    content.pin(PurePath("music"))
    assert content.wait([PurePath("music")], PATIENCE, ignore)
    assert album.volume.signals.wait_until(lambda: content.summary().bytes == 3 * MIB, None)
    content.unpin(PurePath("music"))
    assert album.volume.signals.wait_until(lambda: content.summary() == nothing, None)
