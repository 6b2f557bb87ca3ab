"""A file whose newest bytes only another device has: who meets the error hears what can be read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.read.fetch import FetchLimits
from tests.volume.device import PATIENCE, Device, Second

OLD, NEW = os.urandom(5000), os.urandom(6000)


@pytest.fixture
def second(device: Device, tmp_path: Path) -> Iterator[Device]:
    """A device that shows a file of the other one, which has yet to tell where its newest bytes are."""
    device.write("notes", OLD)
    device.sync()
    device.write("notes", NEW)
    device.sync()
    other = Second(tmp_path / "second", device)
    wait_for(other, len(NEW))
    fs = other.volume.fs
    with fs.state.transaction() as tx:
        rows = tx.execute("SELECT DISTINCT chunk FROM file_chunk").fetchall()
        tx.executemany("UPDATE chunk SET pack = 0, offset = NULL, sealed = NULL WHERE number = ?", rows)
    yield other
    other.close()


def wait_for(device: Device, size: int) -> None:
    def told() -> bool:
        with device.volume.fs.state.transaction() as tx:
            inode = device.volume.fs.lookup(tx, 1, b"notes")
            return inode is not None and inode.size == size

    assert device.volume.signals.wait_until(told, time.monotonic() + PATIENCE)


def warnings(device: Device) -> list[str]:
    found = device.volume.status(look=False).warnings
    return [one for one in found if "notes" in one]


def read_in_vain(device: Device) -> None:
    device.volume.fetcher.limits = FetchLimits(located_within=0.0)
    with pytest.raises(ChunkUnavailable):
        device.read("notes")


def test_status_and_log_name_the_version_that_can_be_read(
    second: Device, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(second) == []
    read_in_vain(second)
    (warning,) = warnings(second)
    assert "hybrisfs versions restore --version 1" in warning
    assert any(warning == record.getMessage() for record in caplog.records)
    first_name = second.volume.versions.newest("notes")[0]
    assert f"{first_name} wrote its newest bytes" in warning


def test_versions_that_cannot_be_read_are_marked(second: Device) -> None:
    listed = second.volume.versions.all("notes").versions
    assert [one.readable for one in listed] == [False, True]


def test_the_version_that_is_named_is_restored_and_read(second: Device) -> None:
    read_in_vain(second)
    second.volume.versions.restore("notes", None, 1, None)
    assert second.read("notes") == OLD
    assert warnings(second) == []


def test_without_a_number_one_that_can_be_read_is_restored(second: Device) -> None:
    second.write("notes", b"newest")
    assert second.volume.uploads.wait_signed(PATIENCE)
    listed = second.volume.versions.all("notes").versions
    assert [one.readable for one in listed] == [True, False, True]
    second.volume.versions.restore("notes", None, None, None)
    assert second.read("notes") == OLD


def test_it_is_over_when_the_bytes_come(second: Device) -> None:
    read_in_vain(second)
    fs = second.volume.fs
    with fs.state.transaction() as tx:
        (number,) = tx.execute("SELECT chunk FROM file_chunk").fetchone()
        tx.chunks.keep(number, NEW)
    assert warnings(second) == []
    assert second.read("notes") == NEW


def test_the_name_of_the_file_makes_no_line_of_its_own(second: Device) -> None:
    read_in_vain(second)
    fs = second.volume.fs
    with fs.state.transaction() as tx:
        fs.rename(tx, 1, b"notes", 1, b"notes\nhybrisfs: all is well\x1b[2K", 0)
    assert second.volume.uploads.wait_signed(PATIENCE)
    (warning,) = warnings(second)
    assert warning.isprintable()
    assert warning.startswith(r"$'notes\nhybrisfs: all is well\e[2K' cannot be read now")
    assert warning.endswith(r" $'notes\nhybrisfs: all is well\e[2K'"), "a word of the command"
