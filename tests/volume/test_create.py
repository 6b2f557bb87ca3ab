"""Creating a volume: all of it or nothing."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hybrisfs.admit.create import create_volume
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.settings.config import VolumeConfig, list_volumes
from hybrisfs.stores.own_places import MARKER_NAME, marker
from tests.system.small_disks import allowing_more, memory_disk, needs_root


def urls(tmp_path: Path, count: int = 3) -> list[str]:
    return [(tmp_path / f"cloud-{number}").as_uri() for number in range(count)]


def objects(tmp_path: Path) -> list[str]:
    """What the clouds hold, but for their own housekeeping."""
    return sorted(str(path) for path in tmp_path.glob("cloud-*/[!.]*"))


def nothing_left(home: Home, tmp_path: Path) -> bool:
    return not objects(tmp_path) and not home.volume_state("vol").exists() and list_volumes(home) == []


def test_a_volume_is_made(home: Home, tmp_path: Path) -> None:
    config = create_volume(home, "vol", urls(tmp_path), None, None)
    assert VolumeConfig.load(home, "vol") == config
    assert (config.f, config.k) == (1, 1)
    assert [one.name for one in config.clouds] == ["cloud-0", "cloud-1", "cloud-2"]
    state = home.volume_state("vol")
    assert state.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}
    for number in range(3):
        assert (tmp_path / f"cloud-{number}" / MARKER_NAME).read_bytes() == marker(config.id)


def test_names_of_clouds_tell_them_apart(home: Home, tmp_path: Path) -> None:
    folders = [tmp_path / number / "same name" for number in ("usb", "nas", "srv")]
    urls = [folder.as_uri() for folder in folders]
    config = create_volume(home, "vol", [urls[0], f"mine={urls[1]}", urls[2]], None, None, make=True)
    assert [(one.name, one.url) for one in config.clouds] == [
        ("usb", urls[0]),
        ("mine", urls[1]),
        ("srv", urls[2]),
    ]


def test_a_name_is_given_once(home: Home, tmp_path: Path) -> None:
    create_volume(home, "vol", urls(tmp_path), None, None)
    with pytest.raises(UsageError, match="already"):
        create_volume(home, "vol", [(tmp_path / "other").as_uri()], None, None)


def test_a_cloud_belongs_to_one_volume(home: Home, tmp_path: Path) -> None:
    first = create_volume(home, "first", urls(tmp_path, 1), None, None)
    with pytest.raises(UsageError, match="another volume"):
        create_volume(home, "vol", urls(tmp_path, 3)[::-1], None, None)
    assert not home.volume_state("vol").exists()
    assert objects(tmp_path) == [str(tmp_path / "cloud-0" / MARKER_NAME)]
    assert (tmp_path / "cloud-0" / MARKER_NAME).read_bytes() == marker(first.id)


@pytest.mark.parametrize("second", ["{0}", "{0}/", "{0}/../cloud-0"])
def test_one_cloud_is_not_two(home: Home, tmp_path: Path, second: str) -> None:
    first = urls(tmp_path, 1)[0]
    with pytest.raises(HybrisError):
        create_volume(home, "vol", [first, second.format(first)], None, None)
    assert nothing_left(home, tmp_path)


@pytest.mark.parametrize("f, k", [(2, 1), (1, 2), (-1, 1), (0, 0)])
def test_impossible_redundancy_is_refused_before_anything_is_made(
    home: Home, tmp_path: Path, f: int, k: int
) -> None:
    with pytest.raises(UsageError):
        create_volume(home, "vol", urls(tmp_path), f, k)
    assert nothing_left(home, tmp_path)
    assert not list(tmp_path.glob("cloud-*"))


def test_a_cloud_that_cannot_be_used_undoes_the_others(home: Home, tmp_path: Path) -> None:
    (tmp_path / "cloud-2").write_bytes(b"a file, no folder")
    with pytest.raises(HybrisError, match="cloud-2"):
        create_volume(home, "vol", urls(tmp_path), None, None)
    (tmp_path / "cloud-2").unlink()
    assert nothing_left(home, tmp_path)


@needs_root
def test_a_full_disk_undoes_everything(tmp_path: Path) -> None:
    """Each time one more file can be made on it: keys, database and configuration are each the first that
    cannot be."""
    refusals: list[str] = []
    with memory_disk(tmp_path / "disk", 16) as disk:
        home = Home.below(disk / "home")
        home.prepare()
        for _ in allowing_more(disk):
            try:
                create_volume(home, "vol", urls(tmp_path), None, None)
                break
            except (OSError, sqlite3.Error) as error:
                refusals.append(str(error))
            assert nothing_left(home, tmp_path)
    told = "\n".join(refusals)
    assert all(what in told for what in ("keys.json", "open database file", "volume.json"))


def test_the_keys_of_a_volume_without_configuration_are_left_alone(home: Home, tmp_path: Path) -> None:
    state = home.volume_state("vol")
    state.mkdir(parents=True)
    (state / "keys.json").write_text("precious")
    with pytest.raises(HybrisError, match="in the way"):
        create_volume(home, "vol", urls(tmp_path), None, None)
    assert (state / "keys.json").read_text() == "precious"
    assert not objects(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.text(max_size=20) | st.text(max_size=12).map("s3://{}".format))
@example("file://[x")
@example("http://[::1")
@example("file:relative")
@example("/tmp/x")
def test_what_is_no_url_of_a_cloud_is_a_clear_error(home: Home, url: str) -> None:
    with pytest.raises(HybrisError):
        create_volume(home, "vol", [url], None, None)
    assert not home.volume_state("vol").exists()


@pytest.mark.parametrize("url", ["s4://bucket", "/elsewhere", "sftp://"])
def test_what_is_no_url_of_a_cloud_is_wrong_usage(home: Home, tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        create_volume(home, "vol", [*urls(tmp_path), url], None, None)


def test_a_cloud_that_cannot_be_reached_is_no_wrong_usage(home: Home, tmp_path: Path) -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        url = f"webdav://127.0.0.1:{nobody_listens.getsockname()[1]}/x"
        with pytest.raises(HybrisError, match="cannot be used: Connection refused\n") as refused:
            create_volume(home, "vol", [*urls(tmp_path), url], None, None)
    assert refused.value.exit_code == 1
    assert refused.value.advice == "Is its address right, and can it be reached from here now?"
