"""The commands that leave, delete and rename volumes, with volumes that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybrisfs.api.volumes import (
    MountRequest,
    VolumeDeleteRequest,
    VolumeLeaveRequest,
    VolumeListRequest,
    VolumeRenameRequest,
)
from hybrisfs.daemon.service import Daemon
from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError, HybrisError, UnknownVolumeError, UsageError
from hybrisfs.home import Home
from tests.daemon.fake import FakeVolume, FakeVolumes, NoKeyValues

OTHER = {"id": "11" * 16, "name": "nas", "forked": False}


@pytest.fixture
def volumes() -> FakeVolumes:
    return FakeVolumes("music", "photos")


@pytest.fixture
def daemon(home: Home, volumes: FakeVolumes) -> Daemon:
    daemon = Daemon(home, volumes, SYSTEM)
    daemon.start()
    return daemon


@pytest.fixture
def photos(daemon: Daemon, volumes: FakeVolumes) -> FakeVolume:
    """A volume of two machines."""
    volume = volumes.opened["photos"]
    volume.others = [dict(OTHER)]
    return volume


def ask(daemon: Daemon, request: Any) -> Any:
    """What the daemon answers to a request."""
    return request.answer_from(daemon.handle(request.command, request.arguments, lambda message: None))


def names(daemon: Daemon) -> list[str]:
    return [one.name for one in ask(daemon, VolumeListRequest()).volumes]


# -- leaving ---------------------------------------------------------------------------------------------


def test_leaving_unmounts_says_so_and_forgets(
    daemon: Daemon, photos: FakeVolume, home: Home, tmp_path: Path
) -> None:
    ask(daemon, MountRequest("photos", str(tmp_path / "mnt")))
    left = ask(daemon, VolumeLeaveRequest("photos"))
    assert (left.others, left.told, left.trouble, left.lost_files) == (["nas"], True, "", 0)
    assert photos.has_left and photos.closed and photos.mountpoint is None
    assert WantedMounts(home.state, SYSTEM).all() == {}
    assert names(daemon) == ["music"]
    with pytest.raises(UnknownVolumeError):
        ask(daemon, VolumeLeaveRequest("photos"))


def test_what_is_pending_is_kept_unless_it_is_forced(daemon: Daemon, photos: FakeVolume) -> None:
    photos.pending_files, photos.pending_bytes = 2, 5000
    photos.states = {f"cloud-{number}": ("down", "gone") for number in range(2)}
    with pytest.raises(HybrisError, match=r"2 files or folders with 5,000 bytes would be lost.*cloud-0"):
        ask(daemon, VolumeLeaveRequest("photos"))
    assert not photos.has_left and not photos.closed and "photos" in names(daemon)
    left = ask(daemon, VolumeLeaveRequest("photos", force=True))
    assert (left.lost_files, left.lost_bytes) == (2, 5000) and names(daemon) == ["music"]


def test_it_waits_no_longer_than_it_is_told(daemon: Daemon, photos: FakeVolume) -> None:
    photos.pending_files = photos.pending_bytes = 7
    with pytest.raises(HybrisError, match="the time was over"):
        ask(daemon, VolumeLeaveRequest("photos", timeout=0.1))
    assert not photos.has_left


def test_keys_that_are_here_only_keep_it(daemon: Daemon, photos: FakeVolume) -> None:
    class Keys(NoKeyValues):
        def only_here(self) -> list[str]:
            return ["list"]

    photos.key_values = Keys()
    with pytest.raises(HybrisError, match="the keys of list would be lost"):
        ask(daemon, VolumeLeaveRequest("photos"))
    assert ask(daemon, VolumeLeaveRequest("photos", force=True)).lost_containers == ["list"]


def test_keys_that_nobody_can_name_keep_it(daemon: Daemon, photos: FakeVolume) -> None:
    class Damaged(NoKeyValues):
        def only_here(self) -> list[str]:
            raise HybrisError("kv.db cannot be opened", "", "hybrisfs kv rebuild makes it anew.")

    photos.key_values = Damaged()
    with pytest.raises(HybrisError, match=r"not known which keys.*\n.*kv rebuild") as told:
        ask(daemon, VolumeLeaveRequest("photos"))
    assert "--force" in str(told.value)
    assert ask(daemon, VolumeLeaveRequest("photos", force=True)).told


def test_nothing_is_lost_but_nobody_hears(daemon: Daemon, photos: FakeVolume) -> None:
    photos.hears = False
    with pytest.raises(HybrisError, match="do not know yet that this machine goes"):
        ask(daemon, VolumeLeaveRequest("photos"))
    assert "photos" in names(daemon), "it can be tried again"
    left = ask(daemon, VolumeLeaveRequest("photos", force=True))
    assert not left.told and left.trouble and names(daemon) == ["music"]


def test_a_machine_that_was_removed_has_nobody_to_tell(daemon: Daemon, photos: FakeVolume) -> None:
    photos.removed = True
    left = ask(daemon, VolumeLeaveRequest("photos"))
    assert left.told and not photos.has_left


def test_one_that_was_removed_keeps_what_nobody_takes(daemon: Daemon, photos: FakeVolume) -> None:
    photos.removed, photos.pending_files = True, 1
    with pytest.raises(HybrisError, match="no other takes its changes"):
        ask(daemon, VolumeLeaveRequest("photos"))


def test_the_last_machine_is_not_left_by_mistake(daemon: Daemon, volumes: FakeVolumes) -> None:
    with pytest.raises(UsageError, match="its last machine"):
        ask(daemon, VolumeLeaveRequest("photos"))
    left = ask(daemon, VolumeLeaveRequest("photos", last=True))
    assert left.others == [] and left.told and not volumes.opened["photos"].has_left


def test_the_last_of_two_that_leave_at_the_same_time_stays(daemon: Daemon, photos: FakeVolume) -> None:
    def sync(timeout: float | None, progress: object) -> bool:
        photos.others = []  # the other one has left
        return True

    photos.sync = sync  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="its last machine"):
        ask(daemon, VolumeLeaveRequest("photos"))
    assert not photos.has_left and not photos.closed


def test_programs_that_use_it_keep_it(daemon: Daemon, photos: FakeVolume, tmp_path: Path) -> None:
    ask(daemon, MountRequest("photos", str(tmp_path / "mnt")))
    photos.busy = True
    with pytest.raises(HybrisError, match="is in use"):
        ask(daemon, VolumeLeaveRequest("photos"))
    assert not photos.has_left and photos.mountpoint is not None
    ask(daemon, VolumeLeaveRequest("photos", force=True))
    assert names(daemon) == ["music"]


def test_a_volume_that_cannot_be_opened_goes_by_force_only(home: Home, volumes: FakeVolumes) -> None:
    volumes.broken["photos"] = DamagedError("the database is damaged")
    daemon = Daemon(home, volumes, SYSTEM)
    with pytest.raises(HybrisError, match="cannot be opened: the database is damaged"):
        ask(daemon, VolumeLeaveRequest("photos"))
    assert not ask(daemon, VolumeLeaveRequest("photos", force=True)).told
    assert names(daemon) == ["music"]


def test_one_that_was_half_forgotten_goes(home: Home, volumes: FakeVolumes) -> None:
    volumes.going.add("photos")
    daemon = Daemon(home, volumes, SYSTEM)
    with pytest.raises(HybrisError, match="volume leave photos"):
        ask(daemon, VolumeDeleteRequest("photos", "photos"))
    ask(daemon, VolumeLeaveRequest("photos"))
    assert names(daemon) == ["music"] and "photos" not in volumes.opened


# -- deleting --------------------------------------------------------------------------------------------


def test_a_volume_is_deleted_when_its_name_is_given_twice(daemon: Daemon, photos: FakeVolume) -> None:
    with pytest.raises(UsageError, match="'Photos' is not the name"):
        ask(daemon, VolumeDeleteRequest("photos", "Photos"))
    assert not photos.closed
    deleted = ask(daemon, VolumeDeleteRequest("photos", "photos"))
    assert deleted.forgotten and [one.objects for one in deleted.clouds] == [4, 4, 4]
    assert names(daemon) == ["music"]


def test_what_is_needed_to_try_again_stays(
    daemon: Daemon, photos: FakeVolume, volumes: FakeVolumes, tmp_path: Path
) -> None:
    ask(daemon, MountRequest("photos", str(tmp_path / "mnt")))
    volumes.troubles["cloud-1"] = "it is away"
    deleted = ask(daemon, VolumeDeleteRequest("photos", "photos"))
    assert not deleted.forgotten and deleted.clouds[1].trouble == "it is away"
    assert photos.closed and photos.mountpoint is None and "photos" in names(daemon)
    with pytest.raises(HybrisError, match="being deleted"):
        ask(daemon, MountRequest("photos", str(tmp_path / "mnt")))
    assert ask(daemon, VolumeDeleteRequest("photos", "photos", force=True)).forgotten
    assert names(daemon) == ["music"]


def test_a_volume_in_use_is_not_deleted(daemon: Daemon, photos: FakeVolume, tmp_path: Path) -> None:
    ask(daemon, MountRequest("photos", str(tmp_path / "mnt")))
    photos.busy = True
    with pytest.raises(HybrisError, match="is in use"):
        ask(daemon, VolumeDeleteRequest("photos", "photos"))
    photos.busy = False
    assert not photos.closed and photos.mountpoint is not None
    ask(daemon, VolumeDeleteRequest("photos", "photos"))


def test_who_may_change_nothing_deletes_nothing(daemon: Daemon, photos: FakeVolume) -> None:
    photos.readers = ["desk"]
    with pytest.raises(HybrisError, match="only reads"):
        ask(daemon, VolumeDeleteRequest("photos", "photos"))
    photos.readers, photos.removed = [], True
    with pytest.raises(HybrisError, match="belongs to it no longer"):
        ask(daemon, VolumeDeleteRequest("photos", "photos"))
    assert not photos.closed


# -- renaming --------------------------------------------------------------------------------------------


def test_a_mounted_volume_is_mounted_again_by_its_new_name(
    daemon: Daemon, photos: FakeVolume, volumes: FakeVolumes, home: Home, tmp_path: Path
) -> None:
    place = tmp_path / "mnt"
    ask(daemon, MountRequest("photos", str(place)))
    renamed = ask(daemon, VolumeRenameRequest("photos", "pictures"))
    assert (renamed.name, renamed.mountpoint) == ("pictures", str(place))
    assert photos.closed and volumes.opened["pictures"].mountpoint == place
    assert WantedMounts(home.state, SYSTEM).all() == {"pictures": WantedMount(place)}
    assert names(daemon) == ["music", "pictures"]


@pytest.mark.parametrize("name", ["music", "a/b", "-x", "photos"])
def test_a_bad_name_changes_nothing(daemon: Daemon, photos: FakeVolume, name: str) -> None:
    with pytest.raises(UsageError):
        ask(daemon, VolumeRenameRequest("photos", name))
    assert not photos.closed and names(daemon) == ["music", "photos"]


def test_a_busy_volume_keeps_its_name(daemon: Daemon, photos: FakeVolume, tmp_path: Path) -> None:
    ask(daemon, MountRequest("photos", str(tmp_path / "mnt")))
    photos.busy = True
    with pytest.raises(HybrisError, match="is in use"):
        ask(daemon, VolumeRenameRequest("photos", "pictures"))
    photos.busy = False
    assert photos.mountpoint is not None and names(daemon) == ["music", "photos"]
