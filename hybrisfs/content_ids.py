"""IDs of files and folders: hashes of what is in them, so equal contents have equal IDs, everywhere.

An ID depends on bytes and names alone, and not on how a volume cuts or keeps them, so a copy on any disk can
be checked. `docs/adr/042-names-that-can-be-cited.md` has the encoding field by field.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

__all__ = [
    "LEAF",
    "ChangedError",
    "Comparison",
    "ContentTree",
    "Difference",
    "DiskTree",
    "compare",
    "content_id",
    "file_hash",
    "folder_hash",
    "kind_of",
    "leaf_hash",
    "root_of",
    "special_hash",
]

LEAF: Final = 1 << 20
"""Bytes of a file that are hashed together."""
_LETTERS: Final = {"-": "f", "l": "l", "d": "d", "p": "p", "s": "s", "c": "c", "b": "b"}


class ChangedError(OSError):
    """What was read has changed while it was read, so that an ID would be one of no state."""


# -- the encoding ---------------------------------------------------------------------------------------


def content_id(kind: str, digest: bytes) -> str:
    """As people cite it: whether a file may be executed is said by the folder that it is in."""
    return f"{'f' if kind == 'x' else kind}1-{digest.hex()}"


def kind_of(mode: int) -> str:
    """f: file, x: program, d: folder, l: link, p: pipe, s: socket, c and b: devices. *mode*: st_mode."""
    kind = _LETTERS[stat.filemode(mode)[0]]
    return "x" if kind == "f" and mode & stat.S_IXUSR else kind


def leaf_hash(data: bytes) -> bytes:
    """Of `LEAF` bytes of a file, or of its last ones."""
    return hashlib.sha256(b"\0" + data).digest()


def root_of(leaves: list[bytes]) -> bytes:
    """The root of the tree of hashes over the leaves, as in RFC 6962."""
    digests = leaves or [hashlib.sha256(b"").digest()]
    while len(digests) > 1:
        pairs = [
            hashlib.sha256(b"\1" + digests[i] + digests[i + 1]).digest()
            for i in range(0, len(digests) - 1, 2)
        ]
        digests = pairs + digests[len(pairs) * 2 :]
    return digests[0]


def file_hash(size: int, leaves: list[bytes]) -> bytes:
    """Of a file of *size* bytes."""
    return hashlib.sha256(b"hybrisfs file 1\0" + size.to_bytes(8, "big") + root_of(leaves)).digest()


def special_hash(kind: str, target: bytes, rdev: int) -> bytes:
    """Of what is neither a file nor a folder. *target*: of a link; *rdev*: the number of a device."""
    if kind == "l":
        return hashlib.sha256(b"hybrisfs link 1\0" + target).digest()
    if kind in "cb":
        numbers = os.major(rdev).to_bytes(4, "big") + os.minor(rdev).to_bytes(4, "big")
        return hashlib.sha256(b"hybrisfs device 1\0" + numbers).digest()
    return hashlib.sha256(b"hybrisfs empty 1\0").digest()


def folder_hash(entries: Iterable[tuple[bytes, str, bytes]]) -> bytes:
    """Of a folder: name, kind and hash of each entry, in any order."""
    digest = hashlib.sha256(b"hybrisfs folder 1\0")
    for name, kind, below in sorted(entries):
        digest.update(kind.encode() + len(name).to_bytes(4, "big") + name + below)
    return digest.digest()


# -- comparing ------------------------------------------------------------------------------------------


class ContentTree(Protocol):
    """A file or folder with its hash. `entries` may be read when they are asked for."""

    @property
    def kind(self) -> str: ...
    @property
    def digest(self) -> bytes: ...
    def entries(self) -> Mapping[bytes, ContentTree]:
        """What is in a folder, by name; nothing is in all else."""


class Difference(NamedTuple):
    path: bytes
    what: str
    """added, removed or changed, from the first folder to the second."""


class Comparison(NamedTuple):
    """The IDs of two files or folders, and what differs, in the order of paths."""

    first: str
    second: str
    differences: list[Difference]


def compare(first: ContentTree, second: ContentTree) -> Comparison:
    """Their IDs, and what differs. Looks into no folders whose hashes are equal."""
    return Comparison(
        content_id(first.kind, first.digest),
        content_id(second.kind, second.digest),
        sorted(_differences(first, second)),
    )


def _differences(first: ContentTree, second: ContentTree) -> Iterator[Difference]:
    pending = [(b".", first, second)]
    while pending:
        path, one, other = pending.pop()
        if (one.kind, one.digest) == (other.kind, other.digest):
            continue
        if one.kind != "d" or other.kind != "d":
            yield Difference(path, "changed")
            continue
        before, after = one.entries(), other.entries()
        for name in {*before, *after}:
            below = name if path == b"." else path + b"/" + name
            if name not in after:
                yield Difference(below, "removed")
            elif name not in before:
                yield Difference(below, "added")
            else:
                pending.append((below, before[name], after[name]))


# -- what is on any disk, read from it ------------------------------------------------------------------


class DiskTree:
    """A file or folder and all below it, as programs see it."""

    def __init__(self, kind: str, digest: bytes) -> None:
        self.kind = kind
        self.digest = digest
        self._entries: dict[bytes, DiskTree] = {}

    def entries(self) -> Mapping[bytes, DiskTree]:
        """What is in the folder, by name."""
        return self._entries

    @staticmethod
    def read(path: bytes, tell: Callable[[int], None]) -> DiskTree:
        """What is at *path*; all of it is read. *tell* hears how many bytes have been read so far. Raises
        ChangedError, OSError."""
        reader = _Reader(tell)
        root = DiskTree(*reader.look(path))
        pending = [(path, root)] if root.kind == "d" else []
        folders: list[DiskTree] = []
        while pending:
            folder, tree = pending.pop()
            folders.append(tree)
            before = os.lstat(folder).st_mtime_ns
            with os.scandir(folder) as listing:
                for entry in listing:
                    below = tree._entries[entry.name] = DiskTree(*reader.look(entry.path))
                    if below.kind == "d":
                        pending.append((entry.path, below))
            if os.lstat(folder).st_mtime_ns != before:
                raise _changed(folder)
        for tree in reversed(folders):  # what is in a folder comes after it
            tree.digest = folder_hash((name, one.kind, one.digest) for name, one in tree._entries.items())
        return root


class _Reader:
    """Reads files, and counts their bytes."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._done = 0

    def look(self, path: bytes) -> tuple[str, bytes]:
        """The kind and the hash of what is at a path; that of a folder follows from what is in it."""
        facts = os.lstat(path)
        kind = kind_of(facts.st_mode)
        if kind in "fx":
            return kind, self._hash_file(path)
        target = os.readlink(path) if kind == "l" else b""  # noqa: PTH115 - byte by byte
        return kind, special_hash(kind, target, facts.st_rdev)

    def _hash_file(self, path: bytes) -> bytes:
        leaves: list[bytes] = []
        size = 0
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            before = os.fstat(descriptor)
            while piece := file.read(LEAF):
                leaves.append(leaf_hash(piece))
                size += len(piece)
                self._done += len(piece)
                self._tell(self._done)
            after = os.fstat(descriptor)
        if (before.st_size, before.st_mtime_ns) != (
            after.st_size,
            after.st_mtime_ns,
        ) or size != after.st_size:
            raise _changed(path)
        return file_hash(size, leaves)


def _changed(path: bytes) -> ChangedError:
    return ChangedError(f"{os.fsdecode(path)} changed while it was read: try again when nothing writes")
