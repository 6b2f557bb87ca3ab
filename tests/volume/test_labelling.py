"""Labels by path, on an open volume."""

from __future__ import annotations

import stat
from pathlib import PurePath

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.registers.labels import MOST_LABELS
from hybrisfs.state.schema import ROOT_INO
from tests.volume.device import Device

SONG, MUSIC, ROOT = PurePath("music/song"), PurePath("music"), PurePath()


@pytest.fixture
def album(device: Device) -> Device:
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        music = fs.make(tx, ROOT_INO, b"music", stat.S_IFDIR | 0o755, 1, 1)
        fs.make(tx, music.ino, b"song", stat.S_IFREG | 0o644, 1, 1)
    return device


def test_they_are_there_after_a_restart(album: Device) -> None:
    labels = album.volume.labels
    assert labels.add(SONG, ["sea", " 2026 "]) == ["2026", "sea"]
    assert labels.add(MUSIC, ["sea"]) == ["sea"]
    assert labels.add(ROOT, ["mine"]) == ["mine"]
    assert labels.remove(SONG, ["2026", "unknown"]) == ["sea"]
    for _ in range(2):
        labels = album.volume.labels
        assert labels.of(SONG) == ["sea"]
        assert labels.counts() == {"sea": 2, "mine": 1}
        assert labels.find("sea") == [MUSIC, SONG]
        assert labels.find("mine") == [ROOT]
        album.sync()
        assert album.fsck().problems == []
        album.reopen()


def test_what_cannot_be_done_is_explained(album: Device) -> None:
    labels = album.volume.labels
    with pytest.raises(HybrisError, match="No such file"):
        labels.add(PurePath("nothing"), ["a"])
    with pytest.raises(UsageError, match="is not a label: a label has 64 bytes at most"):
        labels.add(SONG, ["x" * 65])
    with pytest.raises(UsageError, match="is not a label: a label is a word"):
        labels.find(" ")
    with pytest.raises(HybrisError, match="too many labels: 64 are the most"):
        labels.add(SONG, [str(number) for number in range(MOST_LABELS + 1)])
    album.volume.fs.read_only = True
    with pytest.raises(HybrisError, match="only reads"):
        labels.add(SONG, ["a"])
