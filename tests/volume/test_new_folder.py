"""Local folders that are to become clouds: is the disk there?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrisfs.errors import UsageError
from hybrisfs.stores.own_places import objection_to_making, require_ready, table_of_disks

FSTAB = r"""# /etc/fstab: static file system information.
UUID=0a1b / ext4 errors=remount-ro 0 1
UUID=0a1c none swap sw 0 0
  # LABEL=old /old ext4 defaults 0 0
LABEL=photos /srv/my\040photos ext4 nofail 0 2

broken
"""


def why(folder: str, *mounted: str, expected: str = "") -> str:
    disks = {Path(expected)} if expected else set()
    return objection_to_making(Path(folder), disks, lambda path: str(path) in mounted)


@pytest.mark.parametrize("base", ["/mnt", "/media", "/run/media"])
def test_where_disks_are_mounted_a_folder_needs_one(base: str) -> None:
    assert why(f"{base}/usb/cloud") == f"no disk is mounted at {base}/usb/cloud, nor at a folder above it"
    assert why(f"{base}/usb") == f"no disk is mounted at {base}/usb, nor at a folder above it"


def test_a_disk_may_be_mounted_anywhere_above(tmp_path: Path) -> None:
    assert why(f"/mnt{tmp_path}/cloud", "/mnt") == f"there is no folder /mnt{tmp_path}"
    assert why("/mnt/cloud", "/mnt") == ""
    assert why("/mnt", "/mnt") == ""


def test_the_root_is_no_disk_of_its_own() -> None:
    assert why("/mnt/cloud", "/")


def test_a_disk_that_the_system_wants_there_has_to_be_mounted(tmp_path: Path) -> None:
    disk = str(tmp_path)
    assert why(f"{disk}/cloud", expected=disk) == f"no disk is mounted at {disk}, as /etc/fstab wants it"
    assert why(f"{disk}/cloud", disk, expected=disk) == ""


def test_elsewhere_the_parent_has_to_be_there(tmp_path: Path) -> None:
    assert why(str(tmp_path / "cloud")) == ""
    assert why(str(tmp_path / "a" / "cloud")) == f"there is no folder {tmp_path / 'a'}"
    (tmp_path / "file").touch()
    assert why(str(tmp_path / "file" / "cloud")) == f"there is no folder {tmp_path / 'file'}"


def test_the_table_of_disks(tmp_path: Path) -> None:
    table = tmp_path / "fstab"
    table.write_text(FSTAB)
    assert table_of_disks(table) == {Path("/srv/my photos")}
    assert table_of_disks(tmp_path / "missing") == frozenset()
    table.write_bytes(b"x /srv/\xff\n")
    assert len(table_of_disks(table)) == 1


def test_a_person_may_say_that_it_is_meant(tmp_path: Path) -> None:
    url = (tmp_path / "a b" / "cloud").as_uri()
    with pytest.raises(UsageError, match=r"there is no folder .*/a b\n"):
        require_ready(url, make=False)
    require_ready(url, make=True)
    require_ready("s3://bucket/nowhere/at/all", make=False)
