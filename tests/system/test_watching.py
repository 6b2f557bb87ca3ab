"""Programs that watch a folder hear of what another device does in it, and find it when they look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.conftest import MakeDevice
from tests.system.deadline import until
from tests.system.device import Device
from tests.system.pairing import pair
from tests.system.watching import Watch


@pytest.fixture
def two(make_device: MakeDevice) -> tuple[Path, Path]:
    """The same folder on two devices that are linked."""
    one, other = make_device("one"), make_device("other")
    one.create(3).mount()
    (one.mountpoint / "folder").mkdir()
    pair(one, other, "other")
    other.mount()
    _until_seen(other)
    return one.mountpoint / "folder", other.mountpoint / "folder"


def _until_seen(device: Device) -> None:
    until(lambda: (device.mountpoint / "folder").is_dir(), "the folder to arrive")


def test_what_another_device_does_is_heard(two: tuple[Path, Path]) -> None:
    here, there = two
    with Watch(there) as watch:
        (here / "file").write_bytes(b"first")
        watch.wait_for("moved to", "file")
        assert (there / "file").stat().st_size == 5
        assert (there / "file").read_bytes() == b"first"

        with (here / "file").open("ab") as file:
            file.write(b", then more")
        watch.wait_for("modified", "file")
        assert (there / "file").read_bytes() == b"first, then more"

        (here / "file").rename(here / "renamed")
        watch.wait_for("moved to", "renamed")
        assert [path.name for path in there.iterdir()] == ["renamed"]

        (here / "aside").write_bytes(b"an editor's save")
        (here / "aside").rename(here / "renamed")
        watch.wait_for("moved to", "renamed")
        assert (there / "renamed").read_bytes() == b"an editor's save"

        (here / "renamed").unlink()
        watch.wait_for("deleted", "renamed")
        assert not list(there.iterdir())


def test_folders_are_heard_of_too(two: tuple[Path, Path]) -> None:
    here, there = two
    with Watch(there) as watch:
        (here / "sub").mkdir()
        watch.wait_for("folder moved to", "sub")
        with Watch(there / "sub") as inner:
            (here / "sub" / "file").write_bytes(b"x")
            inner.wait_for("moved to", "file")
            (here / "sub").rename(here / "bus")
            watch.wait_for("folder moved to", "bus")
            assert (there / "bus" / "file").read_bytes() == b"x"
            (here / "bus" / "file").unlink()
            inner.wait_for("deleted", "file")
        (here / "bus").rmdir()
        watch.wait_for("folder deleted", "bus")
        assert not (there / "bus").exists()


def test_a_name_that_only_echoes_see_is_nobody_elses(two: tuple[Path, Path]) -> None:
    here, there = two
    (here / "file").write_bytes(b"x")
    until(lambda: (there / "file").exists(), "the file to arrive")
    assert not (there.parent / ".hybrisfs arrivals").exists()
    assert {path.name for path in there.parent.iterdir()} == {"folder"}
