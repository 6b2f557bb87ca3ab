"""What programs do to a volume before it dies: steps determined by a seed, and the tree after each of them.

Each step is one call of the filesystem, which a crash leaves done or not done. So whatever a crash leaves
must be the tree after one of the steps: not before the last one that is durable, not after the last one
begun.
"""

from __future__ import annotations

import os
import random
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.volume.volume import Volume
from tests.tree.unlocked import unlocked
from tests.volume.device import PATIENCE, Device

__all__ = ["Node", "Programs", "Shown", "shown_tree"]

_NAMES: Final = tuple(f"n{number}" for number in range(12))
_FOLDERS: Final = 4
_MOST_BYTES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Node:
    """What a program sees of one node."""

    kind: int
    content: bytes = b""  # of a symlink its target
    xattrs: Mapping[bytes, bytes] = field(default_factory=dict)


Shown: TypeAlias = dict[str, Node]


class Programs:
    """Works on the volume of *device*; `mark` is told before each step, and when all before it is durable."""

    def __init__(self, device: Device, seed: int, mark: Callable[[str], None]) -> None:
        self._device = device
        self._choose = random.Random(seed)
        self._is_database = seed % 3 == 1
        """Whether most of what they do is what databases do."""
        self._mark = mark
        if seed % 3 == 2:
            device.volume.ignoring.add(["n1*", "!n11"])
        self._ids: dict[str, int] = {"": 0}  # the nodes by path; hard links share one
        self._nodes: dict[int, Node] = {0: Node(stat.S_IFDIR)}
        self._open: dict[int, tuple[int, int]] = {}  # handles: node here, and there
        self.states: list[Shown] = [self._state()]

    def run(self, steps: int) -> None:
        """Do so many steps."""
        kinds: tuple[Callable[[], bool | None], ...] = (
            *(self._create, self._write, self._write, self._write, self._append, self._close),
            *(self._rename, self._rename, self._unlink, self._mkdir, self._rmdir, self._symlink, self._link),
            *(self._truncate, self._zero, self._set_xattr, self._remove_xattr),
            *(
                self._sync_file,
                self._sync_file,
                self._sync_often,
                self._sync_often,
                self._upload,
                self._drop_cache,
                self._reopen,
                self._wait,
            ),
        )
        if self._is_database:
            kinds = (*kinds, *[self._sync_often] * len(kinds))
        done = 0
        while done < steps:
            done += self._choose.choice(kinds)() is not False

    # -- the model -------------------------------------------------------------------------------

    def _state(self) -> Shown:
        return {path: self._nodes[identity] for path, identity in self._ids.items()}

    def _step(self, call: Callable[[FileSystem], object]) -> object:
        """One step; the caller has changed the model before."""
        self.states.append(self._state())
        self._mark(f"step {len(self.states) - 1}")
        fs = self._device.volume.fs
        with fs.state.transaction():
            return call(fs)

    def _durable(self) -> None:
        self._mark(f"durable {len(self.states) - 1}")

    def _paths(self, kind: int) -> list[str]:
        return [path for path, one in self._ids.items() if path and self._nodes[one].kind == kind]

    def _some(self, kind: int) -> str | None:
        paths = self._paths(kind)
        return self._choose.choice(paths) if paths else None

    def _free(self) -> str | None:
        folder = self._choose.choice(["", *self._paths(stat.S_IFDIR)])
        path = f"{folder}/{self._choose.choice(_NAMES)}"
        return None if path in self._ids else path

    def _spot(self, path: str) -> tuple[int, bytes]:
        folder, _, name = path.rpartition("/")
        return _inode(self._device.volume.fs, folder).ino, name.encode()

    def _add(self, path: str, node: Node) -> int:
        self._ids[path] = identity = len(self._nodes)
        self._nodes[identity] = node
        return identity

    def _bytes(self) -> bytes:
        most = self._choose.choice((10, 3000, 20_000, 60_000))
        return self._choose.randbytes(self._choose.randint(1, most))

    # -- names -----------------------------------------------------------------------------------

    def _create(self) -> bool | None:
        if (path := self._free()) is None:
            return False
        parent, name = self._spot(path)
        identity = self._add(path, Node(stat.S_IFREG))
        made = self._step(lambda fs: fs.create(unlocked(fs), parent, name, 0o644, 1, 1, os.O_RDWR)[1])
        assert isinstance(made, int)
        self._open[made] = (identity, _inode(self._device.volume.fs, path).ino)
        return None

    def _mkdir(self) -> bool | None:
        if (path := self._free()) is None or len(self._paths(stat.S_IFDIR)) >= _FOLDERS:
            return False
        parent, name = self._spot(path)
        self._add(path, Node(stat.S_IFDIR))
        self._step(lambda fs: fs.make(unlocked(fs), parent, name, stat.S_IFDIR | 0o755, 1, 1))
        return None

    def _symlink(self) -> bool | None:
        if (path := self._free()) is None:
            return False
        parent, name = self._spot(path)
        target = self._choose.choice(_NAMES).encode()
        self._add(path, Node(stat.S_IFLNK, target))
        self._step(lambda fs: fs.make(unlocked(fs), parent, name, stat.S_IFLNK | 0o777, 1, 1, target=target))
        return None

    def _link(self) -> bool | None:
        source, path = self._some(stat.S_IFREG), self._free()
        if source is None or path is None:
            return False
        ino = _inode(self._device.volume.fs, source).ino
        parent, name = self._spot(path)
        self._ids[path] = self._ids[source]
        self._step(lambda fs: fs.link(unlocked(fs), ino, parent, name))
        return None

    def _rename(self) -> bool | None:
        """To a free name, or over another file as editors do."""
        source = self._some(self._choose.choice((stat.S_IFREG, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)))
        path = self._some(stat.S_IFREG) if self._choose.random() < 0.5 else self._free()
        if source is None or path is None or f"{path}/".startswith(f"{source}/"):
            return False
        if path in self._ids and (
            self._nodes[self._ids[source]].kind != stat.S_IFREG or self._ids[path] == self._ids[source]
        ):
            return False
        (parent, name), (new_parent, new_name) = self._spot(source), self._spot(path)
        below = [one for one in self._ids if one == source or one.startswith(f"{source}/")]
        moved = {path + one[len(source) :]: self._ids.pop(one) for one in below}
        self._ids.update(moved)
        self._step(lambda fs: fs.rename(unlocked(fs), parent, name, new_parent, new_name, 0))
        return None

    def _unlink(self) -> bool | None:
        if (path := self._some(self._choose.choice((stat.S_IFREG, stat.S_IFLNK)))) is None:
            return False
        parent, name = self._spot(path)
        del self._ids[path]
        self._step(lambda fs: fs.unlink(unlocked(fs), parent, name))
        return None

    def _rmdir(self) -> bool | None:
        path = self._some(stat.S_IFDIR)
        if path is None or any(one.startswith(f"{path}/") for one in self._ids):
            return False
        parent, name = self._spot(path)
        del self._ids[path]
        self._step(lambda fs: fs.rmdir(unlocked(fs), parent, name))
        return None

    # -- content ---------------------------------------------------------------------------------

    def _write_at(self, handle: int, offset: int, data: bytes) -> None:
        identity, _ = self._open[handle]
        before = self._nodes[identity]
        content = before.content.ljust(offset, b"\0")
        content = content[:offset] + data + content[offset + len(data) :]
        self._nodes[identity] = replace(before, content=content)
        self.states.append(self._state())
        self._mark(f"step {len(self.states) - 1}")
        self._device.write_at(handle, offset, data)

    def _write(self) -> bool | None:
        if not self._open:
            return False
        handle = self._choose.choice(list(self._open))
        size = len(self._nodes[self._open[handle][0]].content)
        self._write_at(handle, self._choose.randint(0, min(size + 100, _MOST_BYTES)), self._bytes())
        return None

    def _append(self) -> bool | None:
        if not self._open:
            return False
        handle = self._choose.choice(list(self._open))
        self._write_at(handle, len(self._nodes[self._open[handle][0]].content), self._bytes())
        return None

    def _close(self) -> bool | None:
        """Close a file, and mostly one that is open already; or open one."""
        fs = self._device.volume.fs
        if self._open and self._choose.random() < 0.6:
            handle = self._choose.choice(list(self._open))
            del self._open[handle]
            with fs.state.transaction() as tx:
                fs.release(tx, handle)
            return None
        if (path := self._some(stat.S_IFREG)) is None:
            return False
        ino = _inode(fs, path).ino
        with fs.state.transaction() as tx:
            self._open[fs.open(tx, ino, os.O_RDWR)] = (self._ids[path], ino)
        return None

    def _truncate(self) -> bool | None:
        if (path := self._some(stat.S_IFREG)) is None:
            return False
        before = self._nodes[self._ids[path]]
        size = self._choose.choice((0, len(before.content) // 2, len(before.content) + 5000))
        content = before.content[:size].ljust(size, b"\0")
        self._nodes[self._ids[path]] = replace(before, content=content)
        inode = _inode(self._device.volume.fs, path)
        self._step(lambda fs: fs.truncate(unlocked(fs), inode, size))
        return None

    def _zero(self) -> bool | None:
        path = self._some(stat.S_IFREG)
        if path is None or not (content := self._nodes[self._ids[path]].content):
            return False
        start = self._choose.randrange(len(content))
        end = self._choose.randint(start + 1, len(content))
        zeroed = content[:start] + bytes(end - start) + content[end:]
        self._nodes[self._ids[path]] = replace(self._nodes[self._ids[path]], content=zeroed)
        inode = _inode(self._device.volume.fs, path)
        self._step(lambda fs: fs.allocate(unlocked(fs), inode, 0x03, start, end - start))
        return None

    # -- attributes ------------------------------------------------------------------------------

    def _set_xattr(self) -> bool | None:
        if (path := self._some(stat.S_IFREG)) is None:
            return False
        before = self._nodes[self._ids[path]]
        name, value = self._choose.choice((b"user.a", b"user.b")), self._choose.randbytes(9)
        self._nodes[self._ids[path]] = replace(before, xattrs={**before.xattrs, name: value})
        inode = _inode(self._device.volume.fs, path)
        self._step(lambda fs: fs.attributes.set_xattr(unlocked(fs), inode, name, value, 0))
        return None

    def _remove_xattr(self) -> bool | None:
        path = self._some(stat.S_IFREG)
        if path is None or not (xattrs := dict(self._nodes[self._ids[path]].xattrs)):
            return False
        name = self._choose.choice(sorted(xattrs))
        del xattrs[name]
        self._nodes[self._ids[path]] = replace(self._nodes[self._ids[path]], xattrs=xattrs)
        inode = _inode(self._device.volume.fs, path)
        self._step(lambda fs: fs.attributes.remove_xattr(unlocked(fs), inode, name))
        return None

    # -- what makes it last ----------------------------------------------------------------------

    def _sync_file(self) -> None:
        answered, failed = threading.Event(), list[OSError]()

        def answer(error: OSError | None) -> None:
            failed.extend([] if error is None else [error])
            answered.set()

        self._device.volume.committer.request(answer)
        assert answered.wait(PATIENCE) and not failed, failed
        self._durable()

    def _sync_often(self) -> bool | None:
        """Like a database: a few small writes, often in the same place, and an fsync after each."""
        if not self._open:
            return False
        handle = self._choose.choice(list(self._open))
        for _ in range(self._choose.randint(2, 6)):
            size = len(self._nodes[self._open[handle][0]].content)
            data = self._choose.randbytes(self._choose.choice((1, 700, 4096)))
            self._write_at(handle, self._choose.choice((0, size // 2, size)), data)
            self._sync_file()
        return None

    def _upload(self) -> None:
        self._device.sync()
        self._durable()

    def _drop_cache(self) -> bool | None:
        if self._choose.random() < 0.5:
            return False
        self._device.volume.drop_cache()
        return None

    def _reopen(self) -> bool | None:
        if self._choose.random() < 0.7:
            return False
        self._open.clear()
        self._device.reopen()
        self._durable()
        return None

    def _wait(self) -> None:
        time.sleep(self._choose.choice((0.001, 0.01, 0.05)))  # the background works meanwhile, or does not


def _inode(fs: FileSystem, path: str) -> Inode:
    with fs.state.transaction() as tx:
        inode = fs.get(tx, ROOT_INO)
        for name in path.split("/")[1:]:
            found = fs.lookup(tx, inode.ino, name.encode())
            assert found is not None, path
            inode = found
        return inode


def shown_tree(volume: Volume) -> Shown:
    """All that programs see in the volume. Raises OSError where they would get an error."""
    shown: Shown = {}
    todo = [("", ROOT_INO)]
    fs = volume.fs
    while todo:
        path, ino = todo.pop()
        with fs.state.transaction() as tx:
            inode = fs.get(tx, ino)
            names = {
                name: fs.attributes.get_xattr(tx, inode, name)
                for name in fs.attributes.list_xattrs(tx, inode)
            }
            if inode.is_directory:
                entries = fs.names.list(tx, ino, 0, 10_000)
                todo += [(f"{path}/{name.decode()}", child.ino) for _, name, child in entries]
        content = _content(volume, inode) if inode.is_file else inode.target or b""
        shown[path] = Node(stat.S_IFMT(inode.mode), content, names)
    return shown


def _content(volume: Volume, inode: Inode) -> bytes:
    while True:
        with volume.fs.state.transaction() as tx:
            # Like the mount: the list of chunks of a long file comes first.
            data = volume.fs.received.lacking(tx, inode) or volume.fs.read(tx, inode, 0, inode.size)
        if not isinstance(data, Missing):
            return data
        volume.fetcher.fetch(data.chunks)
