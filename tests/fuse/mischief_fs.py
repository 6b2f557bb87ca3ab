"""The filesystem in memory with names that misbehave on purpose, and a server of it that takes orders.

    python -m tests.fuse.mischief_fs DIRECTORY CAPABILITIES OPTIONS      serves DIRECTORY in a thread

Orders are lines of JSON on standard input, `[name, arguments...]`; each is answered by a line of JSON: the
result, or `{"error": text}`. Bytes travel as latin-1 strings.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

from hybrisfs import fuse
from hybrisfs.fuse import LATER, Attributes, Entry, Later, Listing, ListingPlus, Request, records
from tests.fuse.memory_fs import MemoryFS, failure

_LIFETIME = 60  # seconds; then whoever still waits for an answer is let go


class MischiefFS(MemoryFS):
    """Looking up some names misbehaves; a file or directory with the attribute user.late is answered late."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: memoryview | None = None
        self.hanging: list[Request] = []
        self.calls: list[str] = []
        self.xattr_requests = 0
        self.kills: list[bool] = []
        self.kills_by_setattr: list[bool] = []

    def lookup(self, request: Request, parent: int, name: bytes) -> Entry | Later:
        if name == b"explode":
            raise ValueError("as asked")
        if name == b"exit":
            raise SystemExit("as asked")
        if name == b"refuse":
            raise failure(errno.EXDEV)
        if name == b"errorless":
            raise OSError("no number")
        if name == b"nonsense":
            return 42  # type: ignore[return-value]
        if name == b"lost":
            return LATER
        if name == b"twice":
            request.fail(errno.EXDEV)
            return Entry.negative(0)
        if name == b"replied-then-exploded":
            request.fail(errno.EXDEV)
            raise ValueError("as asked")
        if name == b"fail-later":
            return self._later(lambda: request.fail(errno.EXDEV))
        if name.startswith(b"hang"):
            if name == b"hang-killable":
                request.abandon_when_killed()
            self.hanging.append(request)
            return LATER
        return super().lookup(request, parent, name)

    def _later(self, action: Any) -> Later:
        threading.Thread(target=action).start()
        return LATER

    def _is_late(self, ino: int) -> bool:
        return b"user.late" in self.nodes[ino].xattrs

    def read(self, request: Request, ino: int, fh: int, offset: int, size: int) -> bytes | memoryview | Later:
        if not self._is_late(fh):
            return super().read(request, ino, fh, offset, size)
        data = memoryview(bytes(self.nodes[fh].data))[offset : offset + size]
        return self._later(lambda: request.reply(data))

    def write(
        self, request: Request, ino: int, fh: int, offset: int, data: memoryview, kill: bool
    ) -> int | Later:
        self.kept = data
        self.kills.append(kill)
        if not self._is_late(fh):
            return super().write(request, ino, fh, offset, data, kill)
        size = super().write(request, ino, fh, offset, data, kill)
        return self._later(lambda: request.reply(size))

    def readdirplus(self, request: Request, ino: int, fh: int, offset: int, size: int) -> ListingPlus | Later:
        answer = super().readdirplus(request, ino, fh, offset, size)
        return self._later(lambda: request.reply(answer)) if self._is_late(ino) else answer

    def readdir(self, request: Request, ino: int, fh: int, offset: int, size: int) -> Listing | Later:
        answer = super().readdir(request, ino, fh, offset, size)
        return self._later(lambda: request.reply(answer)) if self._is_late(ino) else answer

    def setattr(
        self, request: Request, ino: int, attributes: Attributes, to_set: int, fh: int | None
    ) -> tuple[Attributes, float]:
        self.kills_by_setattr.append(bool(to_set & records.FATTR_KILL_SUIDGID))
        return super().setattr(request, ino, attributes, to_set, fh)

    def getxattr(self, request: Request, ino: int, name: bytes, size: int) -> bytes | int:
        self.xattr_requests += 1
        return super().getxattr(request, ino, name, size)

    def init(self) -> None:
        self.calls.append("init")

    def destroy(self) -> None:
        self.calls.append("destroy")


class Orders:
    """What the server can be told to do."""

    def __init__(self, fs: MischiefFS, session: fuse.MountedSession, loop: threading.Thread) -> None:
        self._fs = fs
        self._session = session
        self._loop = loop

    def ino(self, name: str) -> int:
        return self._fs.root.children[name.encode("latin-1")].ino

    def known(self) -> int:
        """How many inodes are held."""
        return len(self._fs.nodes)

    def lookups(self, name: str) -> int:
        return self._fs.root.children[name.encode("latin-1")].lookups

    def drop(self, name: str) -> None:
        """Remove a name behind the kernel's back."""
        self._fs.remove(1, name.encode("latin-1"))

    def rewrite(self, name: str, text: str) -> None:
        """Change content behind the kernel's back."""
        self._fs.root.children[name.encode("latin-1")].data[:] = text.encode()

    def notify_inval_entry(self, parent: int, name: str) -> None:
        self._session.notify_inval_entry(parent, name.encode("latin-1"))

    def notify_inval_inode(self, ino: int) -> None:
        self._session.notify_inval_inode(ino)

    def use_kept(self) -> str:
        """Touch the buffer of the last write, which is gone."""
        assert self._fs.kept is not None
        return str(self._fs.kept[0])

    def kills(self) -> list[bool]:
        """Whether each write was to clear set-id bits."""
        return self._fs.kills

    def kills_by_setattr(self) -> list[bool]:
        return self._fs.kills_by_setattr

    def xattr_requests(self) -> int:
        return self._fs.xattr_requests

    def hanging(self) -> int:
        """How many requests are kept waiting."""
        return len(self._fs.hanging)

    def fail_hanging(self, number: int) -> None:
        self._fs.hanging.pop().fail(number)

    def fail_hanging_twice(self) -> None:
        request = self._fs.hanging.pop()
        request.fail(errno.EXDEV)
        request.fail(errno.EXDEV)

    def unmount(self, lazy: bool) -> None:
        self._session.unmount(lazy=lazy)

    def join(self) -> bool:
        """Whether the loop has ended."""
        self._loop.join(5)
        return not self._loop.is_alive()

    def close(self) -> list[str]:
        self._session.close()
        return self._fs.calls


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    faulthandler.dump_traceback_later(_LIFETIME, exit=True)
    directory, capabilities, *options = sys.argv[1:]
    fs = MischiefFS()
    try:
        session = fuse.MountedSession(fs, Path(directory), options, capabilities=int(capabilities))
        session.mount()
    except fuse.FuseError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        raise SystemExit(1) from None
    loop = threading.Thread(target=session.run)
    loop.start()
    print(json.dumps(None), flush=True)
    orders = Orders(fs, session, loop)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = getattr(orders, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - the test sees it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    session.unmount(lazy=True)
    loop.join()
    session.close()


if __name__ == "__main__":
    main()
