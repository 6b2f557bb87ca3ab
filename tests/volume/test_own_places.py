"""Folders of this machine that cannot be clouds: what is put there would come back as something to be put."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

import pytest
from msgspec.structs import replace

from backends.errors import PermanentError
from backends.file import FileStore
from hybrisfs.admit.create import create_volume
from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import UsageError
from hybrisfs.fuse.mounting import mounts_of
from hybrisfs.home import Home
from hybrisfs.merge.cloud_records import CloudRecord
from hybrisfs.mirror.ignore import write_marker
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.stores import own_places
from hybrisfs.stores.own_places import MARKER_NAME, OwnPlaces, marker
from tests.system.small_disks import needs_root
from tests.volume.device import ALONE, NAME, Device, Second

_MNT_DETACH = 2  # sys/mount.h

# As in proc_pid_mountinfo(5); the folder is named "my files".
MOUNTINFO = """\
22 1 0:21 / / rw - ext4 /dev/vda rw
90 22 0:50 / {0}/my\\040files rw,nosuid,nodev - fuse.hybrisfs hybrisfs:home rw,user_id=0
91 22 0:51 / {0}/other rw,nosuid,nodev - fuse.sshfs you@host:/ rw,user_id=0
"""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at which, as the system says, a volume is mounted."""
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO.format(tmp_path))
    monkeypatch.setattr(own_places, "mounts_of", lambda kind: mounts_of(kind, table))
    folder = tmp_path / "my files"
    folder.mkdir()
    return folder


def record(home: Home, mount: Path) -> None:
    """The daemon of this home has mounted a volume there."""
    home.state.mkdir(parents=True, exist_ok=True)
    WantedMounts(home.state, SYSTEM).add("home", WantedMount(mount))


def claim(folder: Path, volume: bytes) -> None:
    """Make *folder* look like a cloud of the volume, as whoever writes there can."""
    (folder / ".hybrisfs").mkdir(parents=True)
    (folder / MARKER_NAME).write_bytes(marker(volume))


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    first = Device(tmp_path / "first")
    first.close()
    replace(VolumeConfig.load(first.home, NAME), links=ALONE).save(first.home)
    first.reopen()
    mallory = Second(tmp_path / "mallory", first)
    yield first, mallory
    mallory.close()
    first.close()


def name_cloud(mallory: Device, url: str) -> int:
    """Sign that the volume has a cloud there, and go away."""
    keeper = mallory.volume.clouds._cloud_set
    number = keeper.sign_new(CloudRecord("evil", url))
    mallory.sync()
    mallory.close()
    return number


def health_of(device: Device, number: int) -> tuple[str, str]:
    """What is the matter with a cloud, once the device has heard of it and has asked it."""

    def known() -> bool:
        device.volume.signals.look_around()
        device.volume.writing.look_at_clouds()
        return any(one.number == number and one.state != "ok" for one in device.volume.engine.health())

    assert device.volume.signals.wait_until(known, None, step=0.2)
    return next((one.state, one.reason) for one in device.volume.engine.health() if one.number == number)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("place", ["mount", "mirror", "state"])
def test_nothing_is_written_where_a_member_says_that_a_cloud_is(
    devices: tuple[Device, Device], mounted: Path, tmp_path: Path, place: str
) -> None:
    first, mallory = devices
    record(first.home, mounted)
    mirrored = tmp_path / "mirrored"
    mirrored.mkdir()
    first.volume.mirrors.add(mirrored, PurePath("mirrored"), [])
    folder = {"mount": mounted, "mirror": mirrored, "state": first.state}[place] / "x"
    number = name_cloud(mallory, folder.as_uri())
    claim(folder, first.volume.config.id)
    state, reason = health_of(first, number)
    assert state == "down"
    assert "it lies in" in reason
    first.write("file", b"content")
    first.sync()
    assert not next(one for one in first.volume.config.clouds if one.number == number).proven
    assert files_in(folder) == [MARKER_NAME]


def test_what_a_symbolic_link_leads_to_counts(devices: tuple[Device, Device], tmp_path: Path) -> None:
    first, mallory = devices
    target = first.state / "x"
    (tmp_path / "innocent").symlink_to(target)
    number = name_cloud(mallory, (tmp_path / "innocent").as_uri())
    claim(target, first.volume.config.id)
    state, reason = health_of(first, number)
    assert (state, "it lies in" in reason) == ("down", True)
    assert files_in(target) == [MARKER_NAME]


@contextmanager
def hanging_mount(folder: Path) -> Iterator[None]:
    """A volume is mounted there, and its daemon answers nothing: whoever goes there waits."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/dev/fuse", "r+b", buffering=0) as device:
        options = f"fd={device.fileno()},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"hybrisfs:home", os.fsencode(folder), b"fuse.hybrisfs", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
        try:
            yield
        finally:
            libc.umount2(os.fsencode(folder), _MNT_DETACH)


OBJECTION = """
import sys
from pathlib import Path
from hybrisfs.environment import SYSTEM
from hybrisfs.home import Home
from hybrisfs.stores.own_places import OwnPlaces

print(OwnPlaces(Home.below(Path(sys.argv[1])), SYSTEM).objection(sys.argv[2]))
"""


def objection(home: Path, folder: Path) -> str:
    """Asked in a process of its own: one that waits for a mount cannot be interrupted, only killed."""
    command = [sys.executable, "-c", OBJECTION, str(home), folder.as_uri()]
    return subprocess.run(command, check=True, timeout=100, stdout=subprocess.PIPE, text=True).stdout.strip()


@needs_root
def test_no_mount_is_waited_for_to_learn_whether_it_is_ours(tmp_path: Path) -> None:
    """Neither our own, also if a link led to it, nor that of another home beside it."""
    ours, another, link = tmp_path / "mnt", tmp_path / "another", tmp_path / "link"
    for folder in (ours, another):
        folder.mkdir()
    link.symlink_to(tmp_path)
    homes = [tmp_path / "home", tmp_path / "home-2"]
    record(Home.below(homes[0]), ours)
    record(Home.below(homes[1]), link / "mnt")
    with hanging_mount(ours), hanging_mount(another):
        for home in homes:
            expected = f"it lies in the mount of the volume home, {ours}"
            assert objection(home, ours / "cloud") == expected
            assert objection(home, tmp_path / "cloud") == ""


@needs_root
def test_a_mount_that_comes_later_closes_a_cloud_below_it(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "mnt" / "cloud"
    home = Home.below(tmp_path / "home")
    record(home, tmp_path / "mnt")
    places = OwnPlaces(home, Environment(monotonic=lambda: now[0]))
    store = places.guarded(FileStore(folder.as_uri()))
    store.initialise()
    store.put("name", b"data")
    now[0] += 2
    with (
        hanging_mount(tmp_path / "mnt"),
        pytest.raises(PermanentError, match="it lies in the mount of the volume home"),
    ):
        store.put("name", b"other")
    now[0] += 2
    assert store.get("name", limit=10) == b"data"


def test_a_person_is_told_why_a_folder_cannot_be_a_cloud(
    device: Device, mounted: Path, tmp_path: Path
) -> None:
    record(device.home, mounted)
    mirrored = tmp_path / "mine" / "mirrored"
    mirrored.mkdir(parents=True)
    device.volume.mirrors.add(mirrored, PurePath("mirrored"), [])
    of_another = tmp_path / "elsewhere"
    of_another.mkdir()
    write_marker(of_another, "ab" * 16, SYSTEM)
    for folder, expected in (
        (mounted / "cloud", "it lies in the mount of the volume home"),
        (device.home.state, "it is a folder in which HybrisFS keeps its own files"),
        (device.home.cache / "cloud", "it lies in a folder in which HybrisFS keeps its own files"),
        (tmp_path, "it holds "),
        (mirrored.parent, "it holds a mirrored folder"),
        (mirrored / "cloud", "it lies in a mirrored folder"),
        (of_another / "cloud", "it lies in a mirrored folder"),
    ):
        with pytest.raises(UsageError, match=expected) as refused:
            device.volume.clouds.add(folder.as_uri(), None)
        assert folder.as_uri() in str(refused.value)
        with pytest.raises(UsageError, match=expected):
            device.volume.clouds.test(folder.as_uri())
        with pytest.raises(UsageError, match=expected):
            create_volume(device.home, "another", [folder.as_uri()], None, None)
    assert not (mounted / "cloud").exists()
    assert len(device.volume.clouds.all()) == 3


def test_other_folders_can_be_clouds(device: Device, mounted: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "other" / "cloud", tmp_path / "my files too", device.home.data / "cloud-9"):
        assert device.volume.clouds.add(folder.as_uri(), None, make=True).cloud == folder.name


def test_the_mount_of_another_home_is_a_folder_like_any_other(device: Device, mounted: Path) -> None:
    record(device.home, mounted.parent / "mine")
    assert device.volume.clouds.add((mounted / "cloud").as_uri(), None).cloud == "cloud"
