"""What is written to the folder on the disk: never over what was just saved, never out of the folder."""

from __future__ import annotations

import mmap
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.mirror.file_access import Disk
from hybrisfs.mirror.folder import Folder
from hybrisfs.mirror.model import ChangedError, Facts, Glimpse, Kind, Seen
from tests.mirror.rig import opened_folder


@dataclass
class Fresh:
    """Something to be written."""

    content: bytes
    seen: Seen = field(default_factory=lambda: Seen(b"", b"", Facts(Kind.FILE, 0o600, 1, 0)))
    xattrs: Mapping[bytes, bytes] = field(default_factory=dict)
    kind: Kind = Kind.FILE
    mode: int = 0o600
    own_bits: int = 0o7000

    def __post_init__(self) -> None:
        self.seen = Seen(b"", b"", Facts(self.kind, self.mode, 1_000_000_000, len(self.content), None))

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        yield 0, self.content
        self.seen = self.seen.with_content(b"c" * 32)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


NAMER = ChunkNamer(bytes(32))


class Busy(Disk):
    """A disk on which a program changes something right before or after a step of the mirror, once each."""

    def __init__(self) -> None:
        self.before: dict[str, list[Callable[[], object]]] = {}
        self.after: dict[str, list[Callable[[], object]]] = {}

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        for changes in (self.before, self.after):
            if changes.get(step):
                changes[step].pop(0)()
            if changes is self.before:
                yield

    def rename_to_free_name(self, old_folder: int, old: bytes, new_folder: int, new: bytes) -> None:
        with self._step("rename"):
            super().rename_to_free_name(old_folder, old, new_folder, new)

    def exchange(self, folder: int, one: bytes, other: bytes) -> bool:
        with self._step("exchange"):
            return super().exchange(folder, one, other)

    def set_mode(self, descriptor: int, mode: int) -> None:
        with self._step("mode"):
            super().set_mode(descriptor, mode)


class Plain(Disk):
    """A disk that cannot exchange names, and keeps no permissions and even seconds only."""

    def exchange(self, folder: int, one: bytes, other: bytes) -> bool:
        return False

    def set_mode(self, descriptor: int, mode: int) -> None:
        super().set_mode(descriptor, 0o755)

    def set_time(self, descriptor: int, mtime: int) -> None:
        super().set_time(descriptor, mtime - mtime % 2_000_000_000)


@pytest.fixture
def disk() -> Busy:
    return Busy()


@pytest.fixture
def folder(root: Path, disk: Busy) -> Iterator[Folder]:
    with opened_folder(root, NAMER, disk) as one:
        yield one


def seen(folder: Folder, path: bytes, *, content: bool = True) -> Seen:
    listing = folder.names(path.rpartition(b"/")[0])
    assert listing is not None
    glimpse = listing[path.rpartition(b"/")[2]]
    assert isinstance(glimpse, Glimpse)
    return folder.examine(path, glimpse, content=content)


def names(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def saving(path: Path) -> Callable[[], object]:
    """A program saves a file."""
    return lambda: path.write_bytes(b"saved a moment ago, by a program")


def is_noticed(folder: Folder, path: bytes, agreed: Seen) -> bool:
    """Whether the next look finds that something has changed since this was agreed."""
    now = seen(folder, path)
    return (now.identity, now.stamp) != (agreed.identity, agreed.stamp) and now.changed_since(agreed)


def test_what_changed_is_not_replaced(folder: Folder, root: Path) -> None:
    (root / "file").write_bytes(b"old")
    before = seen(folder, b"file")
    (root / "file").write_bytes(b"newer")
    with pytest.raises(ChangedError):
        folder.write(b"file", Fresh(b"from the volume"), before)
    with pytest.raises(ChangedError):
        folder.write(b"file", Fresh(b"from the volume"), None)
    with pytest.raises(ChangedError):
        folder.remove(b"file", before)
    assert names(root) == {"file": b"newer"}


def test_what_is_saved_at_the_last_moment_stays(folder: Folder, disk: Busy, root: Path) -> None:
    (root / "file").write_bytes(b"old")
    before = seen(folder, b"file")
    disk.before["exchange"] = [saving(root / "file")]
    with pytest.raises(ChangedError):
        folder.write(b"file", Fresh(b"from the volume"), before)
    assert names(root) == {"file": b"saved a moment ago, by a program"}

    (root / "file").write_bytes(b"!")
    before = seen(folder, b"file")
    disk.before["rename"] = [saving(root / "file")]
    with pytest.raises(ChangedError):
        folder.remove(b"file", before)
    assert names(root) == {"file": b"saved a moment ago, by a program"}


def test_two_programs_that_save_at_the_last_moment_are_both_kept(
    folder: Folder, disk: Busy, root: Path
) -> None:
    (root / "file").write_bytes(b"old")
    before = seen(folder, b"file")

    def save(content: bytes) -> None:
        aside = root / "aside"
        aside.write_bytes(content + b", longer than before")
        aside.rename(root / "file")

    disk.before["exchange"] = [partial(save, b"one"), partial(save, b"two")]
    with pytest.raises(ChangedError):
        folder.write(b"file", Fresh(b"from the volume"), before)
    assert set(names(root).values()) >= {b"one, longer than before", b"two, longer than before"}


@pytest.mark.parametrize("moved", [True, False])
def test_what_is_saved_at_the_last_moment_stays_when_its_name_is_moved_or_removed_then(
    folder: Folder, disk: Busy, root: Path, moved: bool
) -> None:
    (root / "file").write_bytes(b"old")
    before = seen(folder, b"file")
    file = root / "file"
    disk.before["exchange"] = [
        saving(file),
        partial(file.rename, root / "elsewhere") if moved else file.unlink,
    ]
    with pytest.raises(ChangedError):
        folder.write(b"file", Fresh(b"from the volume"), before)
    assert names(root)["file"] == b"saved a moment ago, by a program"


def test_a_new_file_replaces_nothing(folder: Folder, disk: Busy, root: Path) -> None:
    disk.before["rename"] = [saving(root / "file")]
    with pytest.raises(ChangedError):
        folder.write(b"file", Fresh(b"from the volume"), None)
    assert names(root) == {"file": b"saved a moment ago, by a program"}


def test_no_symbolic_link_leads_out(folder: Folder, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    (root / "way").symlink_to(outside)
    with pytest.raises(ChangedError):
        folder.write(b"way/new", Fresh(b"x"), None)
    assert folder.names(b"way") is None
    with pytest.raises(ChangedError):
        folder.remove(b"way/file", Seen(b"", b"", Facts(Kind.FILE)))
    assert names(outside) == {"file": b"mine"}


@pytest.mark.parametrize("mode", [0o4711, 0o2750, 0o1777, 0o7777])
def test_no_rights_come_with_what_is_written(folder: Folder, root: Path, mode: int) -> None:
    for kind, name in ((Kind.FILE, "file"), (Kind.DIRECTORY, "directory")):
        written = folder.write(name.encode(), Fresh(b"", kind=kind, mode=mode), None)
        assert mode_of(root / name) == written.facts.mode == mode & 0o777
        set_anew = folder.set_attributes(name.encode(), Fresh(b"", kind=kind, mode=0o7705), written)
        assert mode_of(root / name) == set_anew.facts.mode == 0o705


@pytest.mark.parametrize("own", [0o4000, 0o2000, 0o1000])
def test_the_rights_that_something_has_on_the_disk_it_keeps(folder: Folder, root: Path, own: int) -> None:
    (root / "file").write_bytes(b"here")
    (root / "directory").mkdir()
    for kind, name in ((Kind.FILE, "file"), (Kind.DIRECTORY, "directory")):
        (root / name).chmod(own | 0o700)
        before = seen(folder, name.encode())
        assert before.facts.mode == 0o700
        after = folder.set_attributes(name.encode(), Fresh(b"", kind=kind, mode=0o7755), before)
        assert mode_of(root / name) == own | 0o755
        assert after.facts.mode == 0o755


def test_what_another_device_wrote_gets_no_rights_of_what_it_replaces(folder: Folder, root: Path) -> None:
    """The kernel takes them from a file that is written, too."""
    (root / "file").write_bytes(b"a program of mine")
    (root / "file").chmod(0o6755)
    folder.write(b"file", Fresh(b"another's", mode=0o6755), seen(folder, b"file"))
    assert (root / "file").read_bytes() == b"another's"
    assert mode_of(root / "file") == 0o755


def test_a_directory_keeps_what_it_inherits(folder: Folder, root: Path) -> None:
    root.chmod(0o2770)
    folder.write(b"directory", Fresh(b"", kind=Kind.DIRECTORY, mode=0o750), None)
    assert mode_of(root / "directory") == 0o2750


def test_a_file_that_fails_half_way_leaves_nothing(folder: Folder, root: Path) -> None:
    class Failing(Fresh):
        def blocks(self) -> Iterator[tuple[int, bytes]]:
            yield 0, b"half"
            raise ChangedError("it changed")

    with pytest.raises(ChangedError):
        folder.write(b"file", Failing(b"x"), None)
    assert names(root) == {}


def test_what_a_killed_mirror_left_is_removed(folder: Folder, root: Path) -> None:
    (root / ".hybrisfs-mirror-0123456789abcdef").write_bytes(b"half")
    (root / ".hybrisfs-mirror-fedcba9876543210").mkdir()
    (root / ".hybrisfs-mirror").write_bytes(b"marker")
    folder.names(b"")
    assert names(root) == {".hybrisfs-mirror": b"marker"}


def test_without_exchange_the_last_look_decides(root: Path) -> None:
    (root / "file").write_bytes(b"old")
    with opened_folder(root, NAMER, Plain()) as folder:
        after = folder.write(b"file", Fresh(b"new"), seen(folder, b"file"))
        assert names(root) == {"file": b"new"}
        assert after.facts.size == 3
        assert seen(folder, b"file", content=False).stamp == after.stamp


def changes_of(path: Path) -> dict[str, Callable[[], object]]:
    """What a program may do to a file of seven bytes."""
    return {
        "permissions": lambda: path.chmod(0o700),
        "attributes": lambda: os.setxattr(path, "user.colour", b"green"),
        "time": lambda: os.utime(path, ns=(5, 5)),
        "content": lambda: path.write_bytes(b"another"),
    }


@pytest.mark.parametrize("what", changes_of(Path()))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_changes_while_attributes_are_set_is_noticed(
    folder: Folder, disk: Busy, root: Path, what: str, moment: str
) -> None:
    (root / "file").write_bytes(b"content")
    before = seen(folder, b"file")
    original = Fresh(b"content", mode=0o640)
    original.seen = replace(before, facts=before.facts._replace(mode=0o640))
    (disk.before if moment == "before" else disk.after)["mode"] = [changes_of(root / "file")[what]]
    after = folder.set_attributes(b"file", original, before)
    if (what, moment) == ("permissions", "before"):
        assert mode_of(root / "file") == 0o640, "the volume's count when both change them"
        return
    assert after.facts == original.seen.facts
    assert is_noticed(folder, b"file", after)


def test_content_saved_right_before_the_time_is_set_is_noticed(
    folder: Folder, disk: Busy, root: Path
) -> None:
    (root / "file").write_bytes(b"content")
    before = seen(folder, b"file")
    disk.after["mode"] = [changes_of(root / "file")["content"]]
    after = folder.set_attributes(b"file", Fresh(b"content"), before)
    assert (root / "file").stat().st_mtime_ns == 1_000_000_000
    assert is_noticed(folder, b"file", after)


def test_what_changes_while_attributes_of_a_directory_are_set_is_noticed(
    folder: Folder, disk: Busy, root: Path
) -> None:
    (root / "directory").mkdir(0o700)
    before = seen(folder, b"directory")
    disk.after["mode"] = [lambda: (root / "directory").chmod(0o750)]
    after = folder.set_attributes(b"directory", Fresh(b"", kind=Kind.DIRECTORY, mode=0o755), before)
    assert after.facts.mode == 0o755
    assert is_noticed(folder, b"directory", after)
    assert {one.name for one in root.iterdir()} == {"directory"}


@pytest.mark.parametrize("kind", [Kind.FILE, Kind.DIRECTORY])
def test_what_the_filesystem_does_not_keep_is_no_change(root: Path, kind: Kind) -> None:
    with opened_folder(root, NAMER, Plain()) as folder:
        made = folder.write(b"it", Fresh(b"content", kind=kind, mode=0o640), None)
        before = seen(folder, b"it")
        assert (made.stamp, made.facts.mode) == (before.stamp, 0o755)
        after = folder.set_attributes(b"it", Fresh(b"content", kind=kind, mode=0o600), before)
        assert after.facts.mode == 0o755
        assert not seen(folder, b"it").changed_since(after)
    assert {one.name for one in root.iterdir()} == {"it"}


@pytest.mark.parametrize("what", changes_of(Path()))
def test_what_changes_right_after_a_file_was_written_is_noticed(
    folder: Folder, disk: Busy, root: Path, what: str
) -> None:
    disk.after["rename"] = [changes_of(root / "file")[what]]
    after = folder.write(b"file", Fresh(b"content"), None)
    assert is_noticed(folder, b"file", after)


@pytest.mark.parametrize("what", changes_of(Path()))
def test_what_changes_right_after_a_further_name_was_made_is_noticed(
    folder: Folder, disk: Busy, root: Path, what: str
) -> None:
    (root / "first").write_bytes(b"content")
    first = seen(folder, b"first")
    disk.after["rename"] = [changes_of(root / "file")[what]]
    after = folder.link(b"file", b"first", first, None)
    assert is_noticed(folder, b"file", after)


def test_what_replaces_a_link_right_after_it_was_made_is_noticed(
    folder: Folder, disk: Busy, root: Path
) -> None:
    (root / "another").symlink_to("there")
    disk.after["rename"] = [lambda: (root / "another").rename(root / "link")]
    original = Fresh(b"", kind=Kind.LINK)
    original.seen = Seen(b"", b"", Facts(Kind.LINK, content=b"here"))
    after = folder.write(b"link", original, None)
    assert is_noticed(folder, b"link", after)


@pytest.mark.parametrize("what", ["permissions", "attributes"])
def test_what_changes_right_after_a_directory_was_made_is_noticed(
    folder: Folder, disk: Busy, root: Path, what: str
) -> None:
    disk.after["rename"] = [changes_of(root / "directory")[what]]
    after = folder.write(b"directory", Fresh(b"", kind=Kind.DIRECTORY, mode=0o755), None)
    assert is_noticed(folder, b"directory", after)


def test_a_directory_that_is_being_made_replaces_nothing(folder: Folder, disk: Busy, root: Path) -> None:
    disk.after["mode"] = [lambda: (root / "directory").write_bytes(b"mine")]
    with pytest.raises(ChangedError):
        folder.write(b"directory", Fresh(b"", kind=Kind.DIRECTORY, mode=0o755), None)
    assert names(root) == {"directory": b"mine"}


def test_what_a_program_has_open_for_writing_keeps_its_name(folder: Folder, root: Path) -> None:
    (root / "log").write_bytes(b"1\n")
    before = seen(folder, b"log")
    with (root / "log").open("ab", buffering=0) as file:
        with pytest.raises(OSError, match="open for writing"):
            folder.write(b"log", Fresh(b"from the volume"), before)
        with pytest.raises(OSError, match="open for writing"):
            folder.remove(b"log", before)
        file.write(b"2\n")
    assert names(root) == {"log": b"1\n2\n"}
    folder.remove(b"log", seen(folder, b"log"))
    assert names(root) == {}


def test_what_a_program_has_mapped_keeps_its_name(folder: Folder, root: Path) -> None:
    (root / "file").write_bytes(b"1")
    before = seen(folder, b"file")
    with (root / "file").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 1)
    with mapped:
        with pytest.raises(OSError, match="open for writing"):
            folder.write(b"file", Fresh(b"from the volume"), before)
        mapped[:] = b"2"
    assert names(root) == {"file": b"2"}


def test_what_is_open_to_be_read_is_replaced(folder: Folder, root: Path) -> None:
    (root / "file").write_bytes(b"old")
    before = seen(folder, b"file")
    with (root / "file").open("rb") as file:
        folder.write(b"file", Fresh(b"from the volume"), before)
        assert file.read() == b"old"
    assert names(root) == {"file": b"from the volume"}


@pytest.mark.parametrize("step", ["exchange", "rename"])
def test_what_is_opened_in_the_last_instant_gets_its_name_back(
    folder: Folder, root: Path, disk: Busy, step: str
) -> None:
    (root / "log").write_bytes(b"1\n")
    before, opened = seen(folder, b"log"), []
    disk.before[step] = [lambda: opened.append((root / "log").open("ab", buffering=0))]
    with pytest.raises(ChangedError):
        if step == "exchange":
            folder.write(b"log", Fresh(b"from the volume"), before)
        else:
            folder.remove(b"log", before)
    with opened[0] as file:
        file.write(b"2\n")
    assert names(root) == {"log": b"1\n2\n"}


def test_what_is_written_through_a_mapping_after_a_look_is_noticed() -> None:
    """Linux dates a mapped page when it becomes dirty, and not again until it is on the disk."""
    with TemporaryDirectory(dir="/var/tmp") as directory, opened_folder(Path(directory), NAMER) as folder:
        path = Path(directory) / "file"
        path.write_bytes(bytes(8192))
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"one"
            _skip_without_a_disk(path)
            mapped[:3] = b"two"
            agreed = seen(folder, b"file")
            time.sleep(0.02)  # times have steps of 10 ms at most
            mapped[:3] = b"new"
            assert is_noticed(folder, b"file", agreed)


def _skip_without_a_disk(path: Path) -> None:
    kind = subprocess.run(["stat", "-fc", "%T", path], check=True, capture_output=True, text=True).stdout
    if kind.strip() in ("tmpfs", "ramfs", "overlayfs"):
        pytest.skip("what is mapped has no date there, or another filesystem's")
