"""Names of files and folders that are a hash of what is in them: equal contents have equal names, everywhere.

A name depends on the bytes alone, and not on how a volume cuts or keeps them, so a copy on any disk can be
checked. `docs/adr/042-names-that-can-be-cited.md` has the encoding field by field.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

__all__ = ["ChangedError", "Difference", "NameTree", "differences", "name_tree", "root_of"]

_LEAF: Final = 1 << 20  # bytes of a file that are hashed together
_LETTERS: Final = {"-": "f", "l": "l", "d": "d", "p": "p", "s": "s", "c": "c", "b": "b"}


class ChangedError(OSError):
    """What was read has changed while it was read, so that a name would be one of no state."""


class NameTree(Struct):
    """A name, and those of the entries of a folder."""

    kind: str
    """f: file, x: program, d: folder, l: link, p: pipe, s: socket, c and b: devices."""
    digest: bytes
    entries: dict[bytes, NameTree]

    @property
    def name(self) -> str:
        """As people cite it: whether a file may be executed is said by the folder that it is in."""
        return f"{'f' if self.kind == 'x' else self.kind}1-{self.digest.hex()}"


class Difference(Struct, frozen=True):
    what: str
    """added, removed or changed, from the first folder to the second."""
    path: bytes


def name_tree(path: bytes) -> NameTree:
    """The name of a file or folder and of all below it, which it reads."""
    root = _name_one(path)
    pending = [(path, root)] if root.kind == "d" else []
    folders: list[NameTree] = []
    while pending:
        folder, tree = pending.pop()
        folders.append(tree)
        before = os.lstat(folder).st_mtime_ns
        with os.scandir(folder) as listing:
            for entry in listing:
                below = tree.entries[entry.name] = _name_one(entry.path)
                if below.kind == "d":
                    pending.append((entry.path, below))
        if os.lstat(folder).st_mtime_ns != before:
            raise ChangedError(
                f"{os.fsdecode(folder)} changed while it was read: try again when nothing writes"
            )
    for tree in reversed(folders):  # what is in a folder comes after it
        tree.digest = _folder_digest(tree.entries)
    return root


def differences(first: NameTree, second: NameTree) -> Iterator[Difference]:
    """What differs, in the order of paths of each folder. Looks into no folders whose names are equal."""
    pending = [(b".", first, second)]
    while pending:
        path, one, other = pending.pop()
        if (one.kind, one.digest) == (other.kind, other.digest):
            continue
        if one.kind != "d" or other.kind != "d":
            yield Difference("changed", path)
            continue
        for entry in sorted({*one.entries, *other.entries}):
            below = entry if path == b"." else path + b"/" + entry
            if entry not in other.entries:
                yield Difference("removed", below)
            elif entry not in one.entries:
                yield Difference("added", below)
            else:
                pending.append((below, one.entries[entry], other.entries[entry]))


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


def _name_one(path: bytes) -> NameTree:
    facts = os.lstat(path)
    kind = _LETTERS[stat.filemode(facts.st_mode)[0]]
    if kind == "f":
        digest = _file_digest(path)
        kind = "x" if facts.st_mode & stat.S_IXUSR else "f"
    elif kind == "l":
        digest = hashlib.sha256(b"hybrisfs link 1\0" + os.readlink(path)).digest()  # noqa: PTH115 - byte by byte
    elif kind in "cb":
        numbers = os.major(facts.st_rdev).to_bytes(4, "big") + os.minor(facts.st_rdev).to_bytes(4, "big")
        digest = hashlib.sha256(b"hybrisfs device 1\0" + numbers).digest()
    else:  # of folders it follows when all below them is known
        digest = hashlib.sha256(b"hybrisfs empty 1\0").digest()
    return NameTree(kind, digest, {})


def _file_digest(path: bytes) -> bytes:
    leaves: list[bytes] = []
    size = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        while piece := file.read(_LEAF):
            leaves.append(hashlib.sha256(b"\0" + piece).digest())
            size += len(piece)
        after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size:
        raise ChangedError(f"{os.fsdecode(path)} changed while it was read: try again when nothing writes")
    return hashlib.sha256(b"hybrisfs file 1\0" + size.to_bytes(8, "big") + root_of(leaves)).digest()


def _folder_digest(entries: dict[bytes, NameTree]) -> bytes:
    digest = hashlib.sha256(b"hybrisfs folder 1\0")
    for entry, tree in sorted(entries.items()):
        digest.update(tree.kind.encode() + len(entry).to_bytes(4, "big") + entry + tree.digest)
    return digest.digest()
