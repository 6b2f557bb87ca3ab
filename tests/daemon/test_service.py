"""What the daemon's commands do to the volumes."""

from __future__ import annotations

import logging
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from backends.errors import TransientError
from hybrisfs.daemon.service import Daemon
from hybrisfs.daemon.supervisor import Life
from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError, UnknownVolumeError, UsageError
from hybrisfs.events.record import EventRecord
from hybrisfs.home import Home
from hybrisfs.state.journal import JournalFullError
from hybrisfs.volume.volume import Volume
from hybrisfs.wire import Message
from tests.daemon.fake import FakeVolumes


@pytest.fixture
def volumes() -> FakeVolumes:
    return FakeVolumes("photos")


@pytest.fixture
def daemon(home: Home, volumes: FakeVolumes) -> Daemon:
    return Daemon(home, volumes, SYSTEM)


def call(daemon: Daemon, command: str, **arguments: Any) -> Message:
    return daemon.handle(command, arguments, lambda _: None)


def mount(daemon: Daemon, directory: Path, name: str = "photos") -> Message:
    return call(daemon, "mount", name=name, directory=str(directory))


def test_mounting_makes_the_folder_and_is_remembered(
    daemon: Daemon, home: Home, volumes: FakeVolumes, tmp_path: Path
) -> None:
    place = tmp_path / "new" / "mnt"
    assert mount(daemon, place) == {"name": "photos", "mountpoint": str(place), "mounted": True}
    assert volumes.opened["photos"].mountpoint == place
    assert WantedMounts(home.state, SYSTEM).all() == {"photos": WantedMount(place)}


def test_mounting_again_there_is_no_error_and_elsewhere_is(daemon: Daemon, tmp_path: Path) -> None:
    mount(daemon, tmp_path / "mnt")
    assert mount(daemon, tmp_path / "mnt")["mounted"] is False
    with pytest.raises(UsageError, match=rf"mounted at {tmp_path}/mnt\nRun hybrisfs umount photos"):
        mount(daemon, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_symbolic_link_to_the_mountpoint_is_the_mountpoint(daemon: Daemon, tmp_path: Path) -> None:
    mount(daemon, tmp_path / "mnt")
    (tmp_path / "link").symlink_to(tmp_path / "mnt")
    assert mount(daemon, tmp_path / "link")["mounted"] is False
    directory = str(tmp_path / "link")
    assert call(daemon, "umount", target="link", directory=directory)["name"] == "photos"


@pytest.mark.parametrize("by_name", [True, False])
def test_unmounting_by_name_or_folder_forgets_the_mount_and_keeps_the_volume_open(
    daemon: Daemon, home: Home, volumes: FakeVolumes, tmp_path: Path, by_name: bool
) -> None:
    place = tmp_path / "mnt"
    mount(daemon, place)
    target, directory = ("photos", "/somewhere/photos") if by_name else ("mnt", str(place))
    facts = call(daemon, "umount", target=target, directory=directory)
    assert facts == {"name": "photos", "mountpoint": str(place), "stale": False}
    assert volumes.opened["photos"].mountpoint is None
    assert volumes.opened["photos"].closed is False
    assert WantedMounts(home.state, SYSTEM).all() == {}


def test_unmounting_what_is_not_mounted(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(HybrisError, match="photos is not mounted"):
        call(daemon, "umount", target="photos", directory="/x/photos")
    with pytest.raises(HybrisError, match=f"no volume is mounted at {tmp_path}"):
        call(daemon, "umount", target=str(tmp_path), directory=str(tmp_path))
    with pytest.raises(UnknownVolumeError, match="no volume 'typo'"):
        call(daemon, "umount", target="typo", directory="/x/typo")


def test_a_busy_mount_stays_unless_unmounted_lazily(
    daemon: Daemon, home: Home, volumes: FakeVolumes, tmp_path: Path
) -> None:
    mount(daemon, tmp_path / "mnt")
    volumes.opened["photos"].busy = True
    with pytest.raises(HybrisError, match="in use"):
        call(daemon, "umount", target="photos", directory="/x")
    assert WantedMounts(home.state, SYSTEM).all() != {}
    call(daemon, "umount", target="photos", directory="/x", lazy=True)
    assert volumes.opened["photos"].mountpoint is None


def test_a_mount_that_somebody_else_took_away_is_not_wanted_any_more(
    daemon: Daemon, home: Home, volumes: FakeVolumes, tmp_path: Path
) -> None:
    mount(daemon, tmp_path / "mnt")
    volumes.opened["photos"].mountpoint = None
    assert call(daemon, "status")["volumes"][0]["mountpoint"] is None
    assert WantedMounts(home.state, SYSTEM).all() == {}


def test_a_new_daemon_remounts_what_a_killed_one_had_mounted(
    daemon: Daemon, home: Home, tmp_path: Path
) -> None:
    mount(daemon, tmp_path / "mnt")
    volumes = FakeVolumes("photos", "other")
    Daemon(home, volumes, SYSTEM).start()
    assert volumes.opened["photos"].mountpoint == tmp_path / "mnt"
    assert volumes.opened["other"].mountpoint is None


def test_that_the_last_daemon_died_is_kept_before_this_one_can_die(home: Home) -> None:
    folder = home.volume_state("photos")
    folder.mkdir(parents=True)
    kept: list[list[str]] = []

    class Noting(FakeVolumes):
        def open(self, home: Home, name: str) -> Volume:
            kept.append([event.topic for event in EventRecord(folder).all()])
            return super().open(home, name)

    daemon = Daemon(home, Noting("photos"), SYSTEM)
    daemon.start(Life("this boot", 1000.0, 1005.0, 1))
    daemon.stop()
    assert kept == [["daemon"]]
    [event] = EventRecord(folder).all()
    assert event.text.startswith("the daemon died at ") and event.text.endswith(" and was started again")


def test_stopping_unmounts_and_closes_all_but_the_next_daemon_remounts(
    daemon: Daemon, home: Home, volumes: FakeVolumes, tmp_path: Path
) -> None:
    mount(daemon, tmp_path / "mnt")
    volumes.opened["photos"].busy = True
    daemon.stop()
    assert volumes.opened["photos"].mountpoint is None
    assert volumes.opened["photos"].closed is True
    assert list(WantedMounts(home.state, SYSTEM).all()) == ["photos"]


def test_a_remount_makes_no_folder_and_its_failure_keeps_nothing_else(
    daemon: Daemon, home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    WantedMounts(home.state, SYSTEM).add("photos", WantedMount(tmp_path / "unplugged" / "mnt"))
    (tmp_path / "mnt").mkdir()
    WantedMounts(home.state, SYSTEM).add("other", WantedMount(tmp_path / "mnt"))
    volumes = FakeVolumes("broken", "other", "photos")
    volumes.broken["broken"] = HybrisError("the database is damaged")
    with caplog.at_level(logging.ERROR):
        Daemon(home, volumes, SYSTEM).start()
    assert not (tmp_path / "unplugged").exists()
    assert "cannot remount photos" in caplog.text
    assert "cannot open broken: the database is damaged" in caplog.text
    assert volumes.opened["other"].mountpoint == tmp_path / "mnt"
    assert "photos" in WantedMounts(home.state, SYSTEM).all()


def test_status_of_all_and_of_one(home: Home) -> None:
    volumes = FakeVolumes("b", "a", "c")
    volumes.broken["b"] = HybrisError("the database is damaged")
    daemon = Daemon(home, volumes, SYSTEM)
    entries = call(daemon, "status")["volumes"]
    assert [entry["name"] for entry in entries] == ["a", "b", "c"]
    assert entries[1]["unusable"] is True
    assert entries[1]["last_error"] == "the database is damaged"
    only_usable = {"f", "k", "cache", "copies", "jobs", "merged", "notifications", "pinned", "undeletable"}
    assert set(entries[0]) == set(entries[1]) - {"unusable"} | only_usable | {
        "archive",
        "stale_reads",
        "values",
        "versions",
    }
    assert [entry["name"] for entry in call(daemon, "status", name="c")["volumes"]] == ["c"]


def test_a_volume_that_could_not_be_opened_is_tried_again(home: Home) -> None:
    volumes = FakeVolumes("a")
    volumes.broken["a"] = OSError(5, "Input/output error", "/disk")
    daemon = Daemon(home, volumes, SYSTEM)
    with pytest.raises(HybrisError, match=r"^/disk: Input/output error$"):
        call(daemon, "cache drop")
    del volumes.broken["a"]
    assert call(daemon, "cache drop") == {"name": "a", "freed_bytes": 900_000, "kept_bytes": 100_000}


def _of_a_full_database() -> sqlite3.OperationalError:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.executescript("CREATE TABLE a (b); CREATE TABLE c (d)")
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        JournalFullError("the disk that holds the volume's database is full", budget=False),
        _of_a_full_database(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_of_a_full_disk_it_is_told_which_and_what_to_do(home: Home, error: Exception) -> None:
    volumes = FakeVolumes("a")
    volumes.broken["a"] = error
    with pytest.raises(HybrisError) as caught:
        call(Daemon(home, volumes, SYSTEM), "cache drop")
    assert f"the disk of {home.state} is full" in str(caught.value)
    assert str(caught.value).endswith("\nMake room on it. What was written is kept, and work then goes on.")


def test_the_only_volume_is_meant_when_none_is_named(home: Home) -> None:
    assert call(Daemon(home, FakeVolumes("a"), SYSTEM), "sync")["name"] == "a"
    with pytest.raises(UsageError, match="which volume\\?\nName one, as NAME or with --volume: a, b"):
        call(Daemon(home, FakeVolumes("b", "a"), SYSTEM), "sync")
    with pytest.raises(UnknownVolumeError, match="quickstart makes one"):
        call(Daemon(home, FakeVolumes(), SYSTEM), "sync")
    with pytest.raises(UnknownVolumeError, match="no volume 'x'\nThere are: a, b"):
        call(Daemon(home, FakeVolumes("a", "b"), SYSTEM), "sync", name="x")


def test_sync_without_waiting_says_what_is_pending(daemon: Daemon, volumes: FakeVolumes) -> None:
    assert call(daemon, "sync")["done"] is True
    volumes.opened["photos"].pending_files = 3
    volumes.opened["photos"].pending_bytes = 100
    facts = call(daemon, "sync", wait=False, timeout=None)
    assert (facts["done"], facts["pending_files"], facts["pending_bytes"]) == (False, 3, 100)


def test_sync_asks_nothing_of_the_clouds_beside_what_it_puts(daemon: Daemon, volumes: FakeVolumes) -> None:
    call(daemon, "sync", wait=True)
    call(daemon, "sync", wait=False)
    assert volumes.opened["photos"].looks == 0
    call(daemon, "status")
    assert volumes.opened["photos"].looks == 1


def test_a_waiting_sync_blocks_no_other_command(daemon: Daemon, volumes: FakeVolumes, tmp_path: Path) -> None:
    call(daemon, "status")
    volume = volumes.opened["photos"]
    volume.pending_files = 3
    done: list[Message] = []
    waiter = threading.Thread(target=lambda: done.append(call(daemon, "sync", wait=True)))
    waiter.start()
    assert volume.syncing.wait(30)
    mount(daemon, tmp_path / "mnt")
    assert call(daemon, "status")["volumes"][0]["pending_files"] == 3
    volume.release.set()
    waiter.join()
    assert done[0]["done"] is True


def test_fsck_passes_the_report_on(daemon: Daemon, volumes: FakeVolumes) -> None:
    stages: list[Message] = []
    facts = daemon.handle("fsck", {"clouds": True}, stages.append)
    assert facts == {"name": "photos", "problems": [], "checked": {"files": 12}}
    assert stages == [{"stage": "clouds", "done": 1, "total": 1}]


def test_creating_and_listing(home: Home, tmp_path: Path) -> None:
    daemon = Daemon(home, FakeVolumes(), SYSTEM)
    made = call(daemon, "volume create", name="new", clouds=["file:///a", "file:///b"], f=0, k=2)
    assert made["volume"]["name"] == "new"
    assert [cloud["url"] for cloud in made["volume"]["clouds"]] == ["file:///a", "file:///b"]
    mount(daemon, tmp_path / "mnt", "new")
    assert [(entry["name"], entry["mountpoint"]) for entry in call(daemon, "volume list")["volumes"]] == [
        ("new", str(tmp_path / "mnt"))
    ]


def test_quickstart_does_what_is_still_to_be_done(home: Home) -> None:
    daemon = Daemon(home, FakeVolumes(), SYSTEM)
    first = call(daemon, "quickstart")
    assert (first["created"], first["mounted"]) == (True, True)
    assert first["mountpoint"] == str(home.default_mountpoint)
    assert all(cloud["url"].startswith(home.data.as_uri()) for cloud in first["volume"]["clouds"])
    second = call(daemon, "quickstart")
    assert (second["created"], second["mounted"]) == (False, False)
    assert {**first, "created": False, "mounted": False} == second
    call(daemon, "umount", target="home", directory="/x")
    assert call(daemon, "quickstart")["mounted"] is True


def test_quickstart_at_a_chosen_folder(home: Home, tmp_path: Path) -> None:
    daemon = Daemon(home, FakeVolumes(), SYSTEM)
    chosen = str(tmp_path / "chosen")
    assert call(daemon, "quickstart", directory=chosen)["mountpoint"] == chosen
    assert call(daemon, "quickstart")["mountpoint"] == chosen
    with pytest.raises(UsageError, match="is mounted at"):
        call(daemon, "quickstart", directory=str(tmp_path / "other"))


def test_waiting_for_an_unmount(daemon: Daemon, volumes: FakeVolumes, tmp_path: Path) -> None:
    mount(daemon, tmp_path / "mnt")

    def unmount(_: Message) -> None:
        volumes.opened["photos"].mountpoint = None

    assert daemon.handle("wait unmounted", {"name": "photos"}, unmount) == {"name": "photos"}


def test_waiting_for_an_unmount_ends_with_the_daemon(daemon: Daemon, tmp_path: Path) -> None:
    mount(daemon, tmp_path / "mnt")
    stoppers: list[threading.Thread] = []

    def stop(_: Message) -> None:
        if not stoppers:
            stoppers.append(threading.Thread(target=daemon.stop))
            stoppers[0].start()

    daemon.handle("wait unmounted", {"name": "photos"}, stop)
    stoppers[0].join()


def test_trouble_below_becomes_one_sentence(daemon: Daemon, volumes: FakeVolumes) -> None:
    call(daemon, "status")
    volumes.opened["photos"].failure = TransientError("file:///c", "get", "a", "timed out")
    assert call(daemon, "status")["volumes"][0]["last_error"] == "file:///c: get a: timed out"
    with pytest.raises(HybrisError, match="timed out"):
        call(daemon, "sync")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("no such command", {}),
        ("mount", {}),
        ("mount", {"name": 1, "directory": "/x"}),
        ("mount", {"name": "photos", "directory": "relative"}),
        ("mount", {"name": "photos", "directory": "/a\0b"}),
        ("mount", {"name": "photos", "directory": "/x", "allow_other": 1}),
        ("volume create", {"name": "x", "clouds": "file:///a"}),
        ("volume create", {"name": "x", "clouds": [1]}),
        ("volume create", {"name": "x", "clouds": [], "f": True}),
        ("sync", {"wait": True, "timeout": -1}),
        ("sync", {"wait": True, "timeout": "soon"}),
        ("status", {"name": "x" * 10_000}),
    ],
)
def test_malformed_requests_are_refused(daemon: Daemon, command: str, arguments: Message) -> None:
    with pytest.raises(UsageError):
        daemon.handle(command, arguments, lambda _: None)


def test_a_damaged_volume_is_rebuilt_and_mounted_where_it_was(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mnt").mkdir()
    WantedMounts(home.state, SYSTEM).add("photos", WantedMount(tmp_path / "mnt"))
    volumes = FakeVolumes("photos")
    volumes.broken["photos"] = DamagedError("the database is damaged")
    daemon = Daemon(home, volumes, SYSTEM)
    with caplog.at_level(logging.CRITICAL):
        daemon.start()
    assert call(daemon, "volume rebuild", name="photos")["set_aside"] == "/state/damaged"
    assert volumes.opened["photos"].mountpoint == tmp_path / "mnt"


def test_a_rebuild_that_fails_leaves_the_volume_as_it_was(
    daemon: Daemon, volumes: FakeVolumes, tmp_path: Path
) -> None:
    mount(daemon, tmp_path / "mnt")
    volumes.broken["photos"] = OSError(28, "no space left")
    with pytest.raises(HybrisError, match="no space"):
        call(daemon, "volume rebuild", name="photos")
    del volumes.broken["photos"]
    assert list(WantedMounts(daemon._home.state, SYSTEM).all()) == ["photos"]


def test_a_mount_that_is_wanted_and_cannot_be_is_told_until_it_is_forgotten(
    home: Home, volumes: FakeVolumes, tmp_path: Path
) -> None:
    place = tmp_path / "unplugged"
    WantedMounts(home.state, SYSTEM).add("photos", WantedMount(place))
    daemon = Daemon(home, volumes, SYSTEM)
    daemon.start()
    [photos] = call(daemon, "status")["volumes"]
    assert photos["missing_mount"]["directory"] == str(place)
    assert photos["missing_mount"]["reason"] == "No such file or directory"
    done = call(daemon, "umount", target="photos", directory="/x")
    assert (done["mountpoint"], done["stale"], done["missing"]) == (str(place), False, True)
    [photos] = call(daemon, "status")["volumes"]
    assert photos["missing_mount"] is None


def test_the_folder_of_before_is_opened_when_the_volume_is_mounted_elsewhere(
    home: Home, volumes: FakeVolumes, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    before.mkdir(mode=0)
    WantedMounts(home.state, SYSTEM).add("photos", WantedMount(before))
    mount(Daemon(home, volumes, SYSTEM), tmp_path / "mnt")
    assert stat.S_IMODE(before.stat().st_mode) == 0o755
