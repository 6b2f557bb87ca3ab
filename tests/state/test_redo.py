"""The redo log: what counts after a crash is what was synced, on top of the commit that it belongs to."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Final
from unittest import mock

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import DamagedError
from hybrisfs.state.redo import ExtentRows, Record, RedoLog

NONCE: Final = b"n" * 32
SIZE: Final = 4096
NODE: Final = (7, b"i" * 16, 0o100644, 1, 1, 0, 1, 5, 0, -1, 2, 3, None, 0, 1 << 40, 0)
LINK: Final = (8, b"l" * 16, 0o120777, 1, 1, 0, 1, 5, 0, -1, 2, 3, b"to \xff", 0, 1 << 40, 0)


def record(data: bytes = b"bytes", seq: int = 3) -> Record:
    rows = ExtentRows([(7, 0)], [(7, 0, len(data), 2, 100)])
    return Record([NODE], [], rows, [(b"c\x00key", 7, seq)], seq, 1, len(data), [(2, 100, data)])


def opened(folder: Path, environment: Environment = SYSTEM, nonce: bytes = NONCE) -> RedoLog:
    log = RedoLog(folder / "db-redo", environment, SIZE)
    log.begin(nonce)
    log.prepare()
    return log


def found(folder: Path, nonce: bytes = NONCE) -> list[Record]:
    log = RedoLog(folder / "db-redo", SYSTEM, SIZE)
    records = list(log.replay(nonce))
    log.close()
    return records


def test_what_was_written_is_found(tmp_path: Path) -> None:
    log = opened(tmp_path)
    places = [(4, 1, b"name \xff", 7, 0, 0, None), (5, 1, b"other", 8, 3, 1 << 40, b"")]
    ranges = [(1, 0, b"\x00\xff"), (2, 7, b""), (3, 1, b"end")]
    many = Record([NODE, LINK], places, ExtentRows([], []), [], 9, 2, 5, ranges)
    for one in (record(b"first"), many, record(b"last")):
        assert log.append(one)
    assert log.sync()
    assert log.segments == {2}
    log.close()
    assert found(tmp_path) == [record(b"first"), many, record(b"last")]


def test_it_goes_on_behind_what_was_found(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(record(b"first"))
    log.close()
    log = RedoLog(tmp_path / "db-redo", SYSTEM, SIZE)
    assert list(log.replay(NONCE)) == [record(b"first")]
    log.append(record(b"second"))
    log.close()
    assert found(tmp_path) == [record(b"first"), record(b"second")]


def test_a_commit_ends_all_records(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(record(b"first"))
    log.append(record(b"second"))
    log.begin(b"m" * 32)
    assert not log.segments
    assert found(tmp_path, b"m" * 32) == []
    log.append(record(b"third"))
    log.close()
    assert found(tmp_path, b"m" * 32) == [record(b"third")]
    assert found(tmp_path) == []


def test_what_followed_a_lost_record_does_not_follow_another(tmp_path: Path) -> None:
    """A power cut may leave the second of two records that were not synced. What is written in the place of
    the first one may be as long."""
    log = opened(tmp_path)
    for data in (b"aaaa", b"bbbb", b"cccc"):
        log.append(record(data))
    log.close()
    path = tmp_path / "db-redo"
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"\0\0\0\0"))
    log = RedoLog(path, SYSTEM, SIZE)
    assert list(log.replay(NONCE)) == [record(b"aaaa")]
    log.append(record(b"dddd"))
    log.close()
    assert b"cccc" in path.read_bytes()
    assert found(tmp_path) == [record(b"aaaa"), record(b"dddd")]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.data())
def test_whatever_is_torn_a_beginning_is_found(contents: list[bytes], data: st.DataObject) -> None:
    folder = Path(tempfile.mkdtemp(prefix="hybrisfs-redo-"))
    path = folder / "db-redo"
    log = opened(folder)
    ends = [0]
    for one in contents:
        log.append(record(one))
        ends.append(log._end)
    log.close()
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, ends[-1] - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    sound = sum(end <= at for end in ends[1:])
    assert found(folder) == [record(one) for one in contents[:sound]]
    path.write_bytes(bytes(whole[:at]))  # a file that is too short is no worse
    assert found(folder) == [record(one) for one in contents[:sound]]


def test_a_record_without_room_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.append(record(b"first"))
    assert not log.append(record(bytes(SIZE)))
    assert log.append(record(b"second"))
    log.close()
    assert found(tmp_path) == [record(b"first"), record(b"second")]


def test_there_are_none_without_the_file(tmp_path: Path) -> None:
    log = RedoLog(tmp_path / "db-redo", SYSTEM, SIZE)
    assert list(log.replay(NONCE)) == []
    assert not log.is_ready
    assert not log.append(record())
    assert not log.sync()


def _broken(*_: object) -> None:
    raise OSError(errno.EIO, "broken disk")


def test_on_a_broken_disk_there_are_no_more_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fdatasync = mock.Mock(side_effect=[None, OSError(errno.EIO, "broken disk"), None])
    log = opened(tmp_path, Environment(fdatasync=fdatasync))
    log.append(record(b"first"))
    assert log.sync()
    assert log.sync()  # there is nothing to do
    log.append(record(b"second"))
    assert not log.sync()
    assert not log.sync()
    assert not log.is_ready
    assert not log.append(record(b"third"))
    log.close()
    assert "fsync is slower without it" in caplog.text
    assert found(tmp_path)[0] == record(b"first")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = opened(tmp_path, Environment(fsync=_broken))
    assert not log.is_ready
    assert not (tmp_path / "db-redo").exists()
    assert "fsync is slower without it" in caplog.text


def test_a_sound_record_of_another_format_is_not_passed_over(tmp_path: Path) -> None:
    """Opening without it would lose what a program knows to be durable."""
    rows = msgspec.msgpack.encode({"format": 2})
    whole = len(rows).to_bytes(4, "big") + bytes(4) + rows
    content = whole + blake3(bytes(32) + whole, key=NONCE).digest()
    (tmp_path / "db-redo").write_bytes(content)
    with pytest.raises(DamagedError, match="cannot read"):
        found(tmp_path)
