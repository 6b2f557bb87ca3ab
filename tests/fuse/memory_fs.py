"""A filesystem in memory: the example of how `hybrisfs.fuse` is used, and the subject of its tests.

python -m tests.fuse.memory_fs DIRECTORY        serves until DIRECTORY is unmounted
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from hybrisfs import fuse
from hybrisfs.fuse import (
    Attributes,
    Entry,
    Later,
    Listing,
    ListingPlus,
    Opened,
    Operations,
    Request,
    StatVfs,
    records,
)

_TIMEOUT = 3600.0


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Node:
    """One inode."""

    def __init__(self, ino: int, mode: int, uid: int, gid: int, parent: Node | None) -> None:
        now = time.time_ns()
        self.ino = ino
        self.mode = mode
        self.uid = uid
        self.gid = gid
        self.rdev = 0
        self.nlink = 2 if stat.S_ISDIR(mode) else 1
        self.atime = self.mtime = self.ctime = now
        self.parent = parent or self
        self.children: dict[bytes, Node] = {}
        self.data = bytearray()
        self.target = b""
        self.xattrs: dict[bytes, bytes] = {}
        self.lookups = 0
        self.opens = 0

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def attributes(self) -> Attributes:
        size = len(self.target or self.data)
        return Attributes(
            self.ino,
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
            self.rdev,
            size,
            (size + 511) // 512,
            self.atime,
            self.mtime,
            self.ctime,
        )

    def entry(self) -> Entry:
        self.lookups += 1
        return Entry(self.attributes(), _TIMEOUT, _TIMEOUT)

    def touch(self) -> None:
        self.mtime = self.ctime = time.time_ns()


class MemoryFS(Operations):
    """All in dictionaries. The handle of a file is its inode number, that of a directory counts openings."""

    def __init__(self) -> None:
        self.root = Node(records.FUSE_ROOT_ID, stat.S_IFDIR | 0o755, os.getuid(), os.getgid(), None)
        self.nodes = {self.root.ino: self.root}
        self.listings: dict[int, list[tuple[bytes, Node]]] = {}
        self._last_ino = records.FUSE_ROOT_ID
        self._last_listing = 0

    def child(self, parent: int, name: bytes) -> Node:
        try:
            return self.nodes[parent].children[name]
        except KeyError:
            raise failure(errno.ENOENT) from None

    def add(self, request: Request, parent: int, name: bytes, mode: int) -> Node:
        directory = self.nodes[parent]
        if name in directory.children:
            raise failure(errno.EEXIST)
        self._last_ino += 1
        node = Node(self._last_ino, mode, request.uid, request.gid, directory)
        self.nodes[node.ino] = directory.children[name] = node
        directory.nlink += node.is_directory
        directory.touch()
        return node

    def remove(self, parent: int, name: bytes) -> None:
        directory = self.nodes[parent]
        node = directory.children.pop(name)
        node.nlink -= 2 if node.is_directory else 1
        directory.nlink -= node.is_directory
        node.ctime = time.time_ns()
        directory.touch()
        self._collect(node)

    def _collect(self, node: Node) -> None:
        if node.nlink <= 0 and node.lookups <= 0 and node.opens <= 0:
            self.nodes.pop(node.ino, None)

    # Names

    def lookup(self, request: Request, parent: int, name: bytes) -> Entry | Later:
        node = self.nodes[parent].children.get(name)
        return Entry.negative(_TIMEOUT) if node is None else node.entry()

    def forget(self, forgets: Sequence[tuple[int, int]]) -> None:
        for ino, count in forgets:
            node = self.nodes[ino]
            node.lookups -= count
            self._collect(node)

    def mknod(self, request: Request, parent: int, name: bytes, mode: int, rdev: int) -> Entry:
        node = self.add(request, parent, name, mode)
        node.rdev = rdev
        return node.entry()

    def mkdir(self, request: Request, parent: int, name: bytes, mode: int) -> Entry:
        return self.add(request, parent, name, stat.S_IFDIR | mode).entry()

    def symlink(self, request: Request, target: bytes, parent: int, name: bytes) -> Entry:
        node = self.add(request, parent, name, stat.S_IFLNK | 0o777)
        node.target = target
        return node.entry()

    def readlink(self, request: Request, ino: int) -> bytes:
        return self.nodes[ino].target

    def link(self, request: Request, ino: int, new_parent: int, new_name: bytes) -> Entry:
        directory = self.nodes[new_parent]
        if new_name in directory.children:
            raise failure(errno.EEXIST)
        node = directory.children[new_name] = self.nodes[ino]
        node.nlink += 1
        node.ctime = time.time_ns()
        directory.touch()
        return node.entry()

    def unlink(self, request: Request, parent: int, name: bytes) -> None:
        if self.child(parent, name).is_directory:
            raise failure(errno.EISDIR)
        self.remove(parent, name)

    def rmdir(self, request: Request, parent: int, name: bytes) -> None:
        node = self.child(parent, name)
        if not node.is_directory:
            raise failure(errno.ENOTDIR)
        if node.children:
            raise failure(errno.ENOTEMPTY)
        self.remove(parent, name)

    def rename(
        self, request: Request, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        node = self.child(parent, name)
        source, target = self.nodes[parent], self.nodes[new_parent]
        there = target.children.get(new_name)
        if flags & ~(records.RENAME_NOREPLACE | records.RENAME_EXCHANGE):
            raise failure(errno.EINVAL)
        if flags & records.RENAME_EXCHANGE:
            source.children[name] = self.child(new_parent, new_name)
            self._moved(source.children[name], target, source)
        elif there is None:
            del source.children[name]
        elif flags & records.RENAME_NOREPLACE:
            raise failure(errno.EEXIST)
        elif there.children:
            raise failure(errno.ENOTEMPTY)
        else:
            del source.children[name]
            self.remove(new_parent, new_name)
        target.children[new_name] = node
        self._moved(node, source, target)

    def _moved(self, node: Node, source: Node, target: Node) -> None:
        node.parent = target
        source.nlink -= node.is_directory
        target.nlink += node.is_directory
        node.ctime = time.time_ns()
        source.touch()
        target.touch()

    # Attributes

    def getattr(self, request: Request, ino: int, fh: int | None) -> tuple[Attributes, float]:
        return self.nodes[ino].attributes(), _TIMEOUT

    def setattr(
        self, request: Request, ino: int, attributes: Attributes, to_set: int, fh: int | None
    ) -> tuple[Attributes, float]:
        node = self.nodes[ino]
        now = time.time_ns()
        node.ctime = now
        if to_set & records.FATTR_MODE:
            node.mode = attributes.mode
        if to_set & records.FATTR_UID:
            node.uid = attributes.uid
        if to_set & records.FATTR_GID:
            node.gid = attributes.gid
        if to_set & records.FATTR_SIZE:
            self.resize(node, attributes.size)
        if to_set & records.FATTR_ATIME:
            node.atime = now if to_set & records.FATTR_ATIME_NOW else attributes.atime_ns
        if to_set & records.FATTR_MTIME:
            node.mtime = now if to_set & records.FATTR_MTIME_NOW else attributes.mtime_ns
        return node.attributes(), _TIMEOUT

    def resize(self, node: Node, size: int) -> None:
        del node.data[size:]
        node.data.extend(bytes(size - len(node.data)))
        node.touch()

    def statfs(self, request: Request, ino: int) -> StatVfs:
        return StatVfs(4096, 4096, 1 << 20, 1 << 19, 1 << 18, 1 << 16, 1 << 15, 255)

    def setxattr(self, request: Request, ino: int, name: bytes, value: bytes, flags: int) -> None:
        xattrs = self.nodes[ino].xattrs
        if flags & records.XATTR_CREATE and name in xattrs:
            raise failure(errno.EEXIST)
        if flags & records.XATTR_REPLACE and name not in xattrs:
            raise failure(errno.ENODATA)
        xattrs[name] = value

    def getxattr(self, request: Request, ino: int, name: bytes, size: int) -> bytes | int:
        value = self.nodes[ino].xattrs.get(name)
        if value is None:
            raise failure(errno.ENODATA)
        return self._fitting(value, size)

    def listxattr(self, request: Request, ino: int, size: int) -> bytes | int:
        return self._fitting(b"".join(name + b"\0" for name in self.nodes[ino].xattrs), size)

    def _fitting(self, value: bytes, size: int) -> bytes | int:
        if not size:
            return len(value)
        if len(value) > size:
            raise failure(errno.ERANGE)
        return value

    def removexattr(self, request: Request, ino: int, name: bytes) -> None:
        if self.nodes[ino].xattrs.pop(name, None) is None:
            raise failure(errno.ENODATA)

    # Directories

    def opendir(self, request: Request, ino: int, flags: int) -> Opened:
        node = self.nodes[ino]
        self._last_listing += 1
        self.listings[self._last_listing] = [(b".", node), (b"..", node.parent), *node.children.items()]
        return Opened(self._last_listing)

    def readdir(self, request: Request, ino: int, fh: int, offset: int, size: int) -> Listing | Later:
        answer = Listing(size)
        for position, (name, node) in enumerate(self.listings[fh][offset:], offset + 1):
            if not answer.add(name, node.ino, node.mode, position):
                break
        return answer

    def readdirplus(self, request: Request, ino: int, fh: int, offset: int, size: int) -> ListingPlus | Later:
        answer = ListingPlus(size)
        children = self.nodes[ino].children
        for position, (name, node) in enumerate(self.listings[fh][offset:], offset + 1):
            if position <= 2:
                answer.add_name(name, node.ino, node.mode, position)
            elif children.get(name) is not node:
                continue  # removed since opendir: the kernel must not believe in it again
            elif answer.add(name, Entry(node.attributes(), _TIMEOUT, _TIMEOUT), position):
                node.lookups += 1
            else:
                break
        return answer

    def releasedir(self, request: Request, ino: int, fh: int, flags: int) -> None:
        del self.listings[fh]

    # Files

    def create(
        self, request: Request, parent: int, name: bytes, mode: int, flags: int
    ) -> tuple[Entry, Opened]:
        node = self.add(request, parent, name, mode)
        return node.entry(), self.open(request, node.ino, flags)

    def open(self, request: Request, ino: int, flags: int) -> Opened:
        node = self.nodes[ino]
        if flags & os.O_TRUNC:
            self.resize(node, 0)
        node.opens += 1
        return Opened(ino, keep_cache=True)

    def release(self, request: Request, ino: int, fh: int, flags: int) -> None:
        node = self.nodes[fh]
        node.opens -= 1
        self._collect(node)

    def read(self, request: Request, ino: int, fh: int, offset: int, size: int) -> bytes | memoryview | Later:
        return bytes(memoryview(self.nodes[fh].data)[offset : offset + size])

    def write(
        self, request: Request, ino: int, fh: int, offset: int, data: memoryview, kill: bool
    ) -> int | Later:
        node = self.nodes[fh]
        if offset > len(node.data):
            self.resize(node, offset)
        node.data[offset : offset + len(data)] = data
        node.touch()
        return len(data)

    def fallocate(self, request: Request, ino: int, fh: int, offset: int, length: int, mode: int) -> None:
        if mode:
            raise failure(errno.EOPNOTSUPP)
        node = self.nodes[fh]
        self.resize(node, max(len(node.data), offset + length))

    def lseek(self, request: Request, ino: int, fh: int, offset: int, whence: int) -> int:
        size = len(self.nodes[fh].data)
        if offset >= size:
            raise failure(errno.ENXIO)
        return size if whence == os.SEEK_HOLE else offset

    def copy_file_range(
        self,
        request: Request,
        ino: int,
        fh: int,
        offset: int,
        to: tuple[int, int, int],
        size: int,
        flags: int,
    ) -> int:
        data = self.nodes[fh].data[offset : offset + size]
        self.write(request, to[0], to[1], to[2], memoryview(data), False)
        return len(data)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    session = fuse.MountedSession(MemoryFS(), Path(sys.argv[1]), ["fsname=memory", "subtype=memory"])
    session.mount()
    loop = threading.Thread(target=session.run)
    loop.start()
    try:
        loop.join()
    finally:
        session.unmount(lazy=True)
        loop.join()
        session.close()


if __name__ == "__main__":
    main()
