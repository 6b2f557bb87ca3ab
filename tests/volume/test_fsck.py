"""fsck: it is quiet about a sound volume, and names every kind of damage, where it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrisfs.api.maintenance import Check
from hybrisfs.errors import DamagedError
from hybrisfs.verify.fsck import Problem
from tests.volume.device import NAME, Device

CONTENT = {f"file {number}": b"content %d " % number * 500 for number in range(4)}


@pytest.fixture
def filled(device: Device) -> Device:
    """Files on the clouds, and one more that no cloud has."""
    for name, content in CONTENT.items():
        device.write(name, content)
    device.sync()
    return device


def problems(device: Device, *, clouds: bool = False) -> list[Problem]:
    return device.fsck(clouds=clouds).problems


def test_a_sound_volume(filled: Device) -> None:
    filled.write("pending", b"pending")
    report = filled.fsck(clouds=True)
    assert report.problems == []
    checked = report.checked
    assert (checked["files"], checked["cached chunks"] >= 4, checked["updates"] > 0) == (5, True, True)
    assert checked["objects on clouds"] >= 3 + 2 + 2
    assert report.facts() == Check([], checked)


def test_a_sound_volume_in_use(filled: Device) -> None:
    """What programs do meanwhile is no damage."""
    stop = threading.Event()

    def use() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            filled.write(f"file {count % 5}", b"%d " % count * 1000)
            filled.volume.drop_cache()

    user = threading.Thread(target=use)
    user.start()
    try:
        for _ in range(5):
            assert problems(filled) == []
    finally:
        stop.set()
        user.join()


# -- rows -----------------------------------------------------------------------------------------

ROWS: dict[str, tuple[str, str]] = {
    "name": ("UPDATE place SET name = CAST('filf 0' AS BLOB) WHERE name = CAST('file 0' AS BLOB)", "tree"),
    "parent": ("UPDATE place SET parent = 77 WHERE name = CAST('file 0' AS BLOB)", "tree"),
    "cycle": ("UPDATE place SET parent = ino WHERE name = CAST('file 0' AS BLOB)", "tree"),
    "no name": ("DELETE FROM place WHERE name = CAST('file 0' AS BLOB)", "tree"),
    "node": ("DELETE FROM node WHERE ino = 3", "tree"),
    "node id": ("UPDATE node SET id = randomblob(16) WHERE ino = 3", "tree"),
    "mode": ("UPDATE node SET mode = mode | 2 WHERE ino = 3", "tree"),
    "time": ("UPDATE node SET mtime = mtime + 1 WHERE ino = 3", "tree"),
    "links": ("UPDATE node SET nlink = 2 WHERE ino = 3", "tree"),
    "size": ("UPDATE node SET size = size + 1 WHERE ino = 3", "tree"),
    "xattr": ("INSERT INTO xattr VALUES (3, x'7573', x'00')", "tree"),
    "part of a file": ("DELETE FROM file_chunk WHERE ino = 3", "tree"),
    "other chunk": ("UPDATE file_chunk SET chunk = 1 + chunk % 4 WHERE ino = 3", "tree"),
    "overlap": (
        "INSERT INTO file_chunk SELECT ino, offset + 1, length, chunk, 0 FROM file_chunk",
        "tree",
    ),
    "part of a chunk": ("UPDATE file_chunk SET skip = 1 WHERE ino = 3", "tree"),
    "chunk": ("DELETE FROM chunk WHERE number = 1", "tree"),
    "chunk id": ("UPDATE chunk SET id = randomblob(32) WHERE number = 1", "cache"),
    "chunk length": ("UPDATE chunk SET length = length - 1 WHERE number = 1", "tree"),
    "chunk offset": ("UPDATE chunk SET offset = offset + 1 WHERE number = 1", "packs"),
    "chunk nowhere": ("UPDATE chunk SET segment = NULL, pack = NULL WHERE number = 1", "tree"),
    "placement": ("UPDATE pack SET placement = x'0202'", "packs"),
    "pack": ("DELETE FROM pack", "tree"),
    "extents": ("INSERT INTO extent VALUES (3, 0, 10, 0, 0), (3, 5, 10, 0, 0)", "tree"),
    "no change": ("INSERT INTO unsigned VALUES (x'6c', x'01')", "tree"),
    "no value": ("INSERT INTO pending (key, ino, seq) VALUES (x'6c', 3, 1)", "tree"),
    "stamp": ("UPDATE place SET stamp = stamp + 65536", "tree"),
    "update": ("UPDATE log SET bytes = CAST(substr(bytes, 2) || x'00' AS BLOB) WHERE clock = 1", "log"),
    "signature": (
        "UPDATE log SET bytes = CAST(substr(bytes, 1, 200) || x'ff' || substr(bytes, 202) AS BLOB)",
        "log",
    ),
    "hash": ("UPDATE log SET hash = randomblob(32) WHERE clock = 1", "log"),
    "lost update": ("DELETE FROM log WHERE clock = 1", "log"),
    "lost body": ("UPDATE log SET bytes = NULL WHERE clock = 1", "log"),
    "staged": ("INSERT INTO extent VALUES (3, 0, 10, 12345, 0)", "cache"),
}


@pytest.mark.parametrize("damage", ROWS)
def test_damaged_rows_are_named(filled: Device, damage: str) -> None:
    statement, where = ROWS[damage]
    with filled.volume.fs.state.transaction() as tx:
        filled.volume.fs.commit(tx)
        tx.execute(statement)
    found = problems(filled)
    assert where in {problem.where for problem in found}, found
    assert all(problem.what for problem in found)


@pytest.mark.parametrize("column", ["name", "slot", "stamp", "ino"])
def test_rows_of_nonsense_are_named(filled: Device, column: str) -> None:
    with filled.volume.fs.state.transaction() as tx:
        filled.volume.fs.commit(tx)
        tx.execute(f"UPDATE place SET {column} = 'nonsense' WHERE rowid = 1")
    assert problems(filled)


def test_counters(filled: Device) -> None:
    filled.volume.fs.total_files += 1
    (problem,) = problems(filled)
    assert (problem.where, problem.severity) == ("tree", "warning")


def replace(database: Path, content: bytes) -> None:
    """Another file in its place: SQLite may still hold on to the old one in this process."""
    for path in database.parent.glob("volume.db*"):
        path.unlink()
    database.write_bytes(content)


def test_pages_of_the_database(filled: Device) -> None:
    """Bits that flip on the disk, in any page: found, or without effect on what the volume says."""
    filled.volume.drop_cache()
    before = {name: filled.read(name) for name in CONTENT}
    filled.close()
    path = filled.state / "volume.db"
    good = path.read_bytes()
    found = 0
    for page in range(1, len(good) // 4096):
        at = page * 4096 + 4096 - 5  # rows grow from the end of a page
        replace(path, good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        try:
            filled.reopen()
            found += bool(problems(filled)) or any(filled.read(name) != before[name] for name in before)
        except (DamagedError, OSError):
            found += 1
        filled.close()
    assert found
    replace(path, good)
    filled.reopen()
    assert problems(filled) == []


# -- bytes ----------------------------------------------------------------------------------------


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def test_the_journal(filled: Device) -> None:
    (segment,) = (filled.state / "journal").iterdir()
    flip(segment)
    (problem,) = problems(filled)
    assert (problem.where, problem.severity) == ("cache", "warning")
    assert "the clouds have it" in problem.what


def test_the_journal_where_the_clouds_have_lost_it(filled: Device) -> None:
    """Nothing waits for another device to share it: it was there."""
    with filled.volume.fs.state.transaction() as tx:
        for (pack,) in tx.execute("SELECT number FROM pack").fetchall():
            tx.chunks.set_aside(pack)
        filled.volume.fs.commit(tx)
    (segment,) = (filled.state / "journal").iterdir()
    flip(segment)
    (problem,) = [one for one in problems(filled) if one.where == "cache"]
    assert problem.severity == "error"
    assert "the clouds have lost it" in problem.what


def test_the_journal_where_no_cloud_has_it(filled: Device) -> None:
    away = [cloud.rename(cloud.with_name(f"{cloud.name} away")) for cloud in filled.clouds]
    filled.write("staged", b"staged " * 100)
    filled.volume.committer.commit_now()
    for path in (filled.state / "journal").iterdir():
        path.write_bytes(b"")
    found = problems(filled)
    lost = [problem for problem in found if problem.severity == "error"]
    assert {problem.where for problem in lost} == {"cache"}
    assert all("lost" in problem.what for problem in lost)
    for cloud, folder in zip(filled.clouds, away, strict=True):
        folder.rename(cloud)


def objects(cloud: Path, pattern: str) -> list[Path]:
    return sorted(path for path in cloud.glob(pattern) if path.is_file())


CLOUD_DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "share altered": ("packs/*/*", flip),
    "share header altered": ("packs/*/*", lambda path: flip(path, 20)),
    "share cut short": ("packs/*/*", lambda path: path.write_bytes(path.read_bytes()[:-1])),
    "share longer": ("packs/*/*", lambda path: path.write_bytes(path.read_bytes() + b"x")),
    "share empty": ("packs/*/*", lambda path: path.write_bytes(b"")),
    "share gone": ("packs/*/*", Path.unlink),
    "segment altered": ("log/*/*", flip),
    "segment gone": ("log/*/*", Path.unlink),
    "head altered": ("heads/*", flip),
    "head gone": ("heads/*", Path.unlink),
    "marker of another volume": ("volume", lambda path: flip(path, -1)),
    "marker gone": ("volume", Path.unlink),
}


def acknowledged(device: Device, pattern: str) -> int:
    """A cloud that is known to hold such an object; others may hold a copy that nobody counts on."""
    tables = {"packs/*/*": "pack", "log/*/*": "log_segment"}
    if pattern not in tables:
        return 0
    with device.volume.fs.state.transaction() as tx:
        row = tx.execute(f"SELECT placement FROM {tables[pattern]}").fetchone()
    return int(row[0][0])


@pytest.mark.parametrize("damage", CLOUD_DAMAGE)
def test_damage_on_a_cloud_is_named(filled: Device, damage: str) -> None:
    pattern, action = CLOUD_DAMAGE[damage]
    assert problems(filled, clouds=True) == []  # from then on all clouds have the head, and it is looked for
    cloud = filled.clouds[acknowledged(filled, pattern)]
    damaged = objects(cloud, pattern)[0]
    action(damaged)
    (problem,) = problems(filled, clouds=True)
    assert problem.where == f"cloud {cloud.name}"
    assert str(damaged.relative_to(cloud)) in problem.what


def test_swapped_shares(filled: Device) -> None:
    filled.write("more", b"another pack " * 100)
    filled.sync()
    cloud = next(cloud for cloud in filled.clouds if len(objects(cloud, "packs/*/*")) > 1)
    one, two = objects(cloud, "packs/*/*")[:2]
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert {problem.where for problem in problems(filled, clouds=True)} == {f"cloud {cloud.name}"}


def test_a_cloud_that_is_gone(filled: Device) -> None:
    away = filled.clouds[1].rename(filled.clouds[1].with_name("away"))
    assert {problem.where for problem in problems(filled, clouds=True)} == {f"cloud {filled.clouds[1].name}"}
    away.rename(filled.clouds[1])
    assert problems(filled, clouds=True) == []
    assert filled.volume.name == NAME
