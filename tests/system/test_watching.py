"""Programs that watch a folder hear of what another device does in it, and find it when they look."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
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


@pytest.mark.parametrize("event", ["created", "moved to", "closed after writing"])
def test_whoever_watches_for_one_event_hears_of_a_new_file(two: tuple[Path, Path], event: str) -> None:
    here, there = two
    with Watch(there, event) as watch:
        for number in range(300):
            (here / f"file-{number}").write_bytes(b"%d" % number)
        for number in range(300):
            watch.wait_until(event, f"file-{number}")
            assert (there / f"file-{number}").read_bytes() == b"%d" % number
        assert len(watch.heard) == 300, "each is heard once"


@pytest.mark.parametrize("event", ["folder created", "folder moved to"])
def test_whoever_watches_for_one_event_hears_of_a_new_folder(two: tuple[Path, Path], event: str) -> None:
    here, there = two
    with Watch(there, event.removeprefix("folder ")) as watch:
        (here / "sub").mkdir()
        (here / "sub" / "file").write_bytes(b"x")
        watch.wait_until(event, "sub")
        with Watch(there / "sub") as inner:
            (here / "sub" / "later").write_bytes(b"y")
            inner.wait_for("created", "later")
        until(lambda: (there / "sub" / "file").exists(), "the file to arrive")
        assert {path.name for path in (there / "sub").iterdir()} == {"file", "later"}


def test_a_folder_that_arrives_is_there_or_not_for_whoever_looks(two: tuple[Path, Path]) -> None:
    """While it is made and moved for those who watch, others get no error but that it is not there."""
    here, there = two
    wanted = [there / "0"]
    over = threading.Event()
    wrong: set[int] = set()

    def look() -> None:
        while not over.is_set():
            try:
                wanted[-1].stat()
            except FileNotFoundError:
                pass
            except OSError as error:
                wrong.add(error.errno or 0)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        with Watch(there, "created") as watch:
            for number in range(150):
                wanted.append(there / str(number))
                (here / str(number)).mkdir()
                watch.wait_for("folder created", str(number))
    finally:
        over.set()
        for looker in lookers:
            looker.join()
    assert not wrong


def test_a_folder_that_moves_is_heard_of_though_a_program_has_found_it_already(
    two: tuple[Path, Path],
) -> None:
    here, there = two
    for name in ("one", "other"):
        (here / name).mkdir()
    until(lambda: (there / "one").exists() and (there / "other").exists(), "the folders to arrive")
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for name in ("one", "other"):
                (there / name / "moved").exists()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        with Watch(there / "one") as one, Watch(there / "other") as other:
            (here / "one" / "moved").mkdir()
            one.wait_for("folder moved to", "moved")  # or that were taken for the second move
            for source, target, watch in [("one", "other", other), ("other", "one", one)] * 10:
                (here / source / "moved").rename(here / target / "moved")
                watch.wait_for("folder moved to", "moved")
                (there / target / "moved" / "file").write_bytes(b"still a folder")
    finally:
        over.set()
        looker.join()


def test_links_and_pipes_are_created_too(two: tuple[Path, Path]) -> None:
    here, there = two
    (here / "file").write_bytes(b"x")
    until(lambda: (there / "file").exists(), "the file to arrive")
    with Watch(there, "created") as watch:
        (here / "symbolic").symlink_to("file")
        os.mkfifo(here / "pipe")
        (here / "second").hardlink_to(here / "file")
        for name in ("symbolic", "pipe", "second"):
            watch.wait_until("created", name)
    assert (there / "symbolic").readlink() == Path("file")
    assert (there / "pipe").is_fifo()
    assert (there / "second").samefile(there / "file") and (there / "file").stat().st_nlink == 2


def test_written_is_told_from_changed_attributes(two: tuple[Path, Path]) -> None:
    here, there = two
    (here / "file").write_bytes(b"first")
    with Watch(there) as watch:
        (here / "sub").mkdir()
        watch.wait_for("folder created", "sub")
        (here / "last").write_bytes(b"last")
        watch.wait_for("moved to", "last")

    def change_mode() -> None:
        (here / "file").chmod(0o600)

    def set_times() -> None:
        os.utime(here / "file", (1, 1))

    def set_attribute() -> None:
        os.setxattr(here / "file", "user.color", b"blue")

    written = {("modified", "file"), ("closed after writing", "file")}
    for change in (change_mode, set_times, set_attribute):
        with Watch(there) as watch:
            change()
            watch.wait_until("attributes", "file")
            assert not written & set(watch.heard)
    assert (there / "file").stat().st_mtime == 1
    with Watch(there) as watch:
        (here / "sub").chmod(0o700)
        watch.wait_until("folder attributes", "sub")
    with Watch(there) as watch:
        (here / "file").write_bytes(b"then more")
        watch.wait_until("closed after writing", "file")
        assert ("modified", "file") in watch.heard
        assert ("attributes", "file") not in watch.heard
        assert (there / "file").read_bytes() == b"then more"


def test_one_of_two_names_that_goes_is_deleted_and_not_moved(two: tuple[Path, Path]) -> None:
    here, there = two
    with Watch(there) as watch:
        (here / "file").write_bytes(b"x")
        (here / "second").hardlink_to(here / "file")
        watch.wait_for("moved to", "second")
        (here / "file").unlink()
        watch.wait_until("deleted", "file")
        assert ("moved from", "file") not in watch.heard


def test_letting_programs_hear_changes_nothing(two: tuple[Path, Path], tmp_path: Path) -> None:
    here, there = two
    [database] = (tmp_path / "other").rglob("volume.db")

    def marks() -> tuple[int, int]:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            return (
                db.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()[0],
                db.execute("SELECT count(*) FROM pending WHERE clock IS NULL").fetchone()[0],
            )

    before = marks()
    with Watch(there) as watch:
        (here / "sub").mkdir()
        (here / "link").symlink_to("file")
        (here / "file").write_bytes(b"first")
        (here / "file").chmod(0o755)
        os.utime(here / "file", ns=(1_234_567_890, 1_234_567_890))
        watch.wait_for("moved to", "file")
        (here / "file").write_bytes(b"second")
        os.utime(here / "file", ns=(1_234_567_891, 1_234_567_891))
        until(lambda: (there / "file").read_bytes() == b"second", "the content to arrive")
        (here / "last").write_bytes(b"x")
        watch.wait_for("moved to", "last")
    assert (there / "file").stat().st_mtime_ns == 1_234_567_891
    assert stat.S_IMODE((there / "file").stat().st_mode) == 0o755
    assert marks() == before


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
