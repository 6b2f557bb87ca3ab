"""The daemon's hand in its own mount: a small process that renames, removes and truncates there when told to.

No thread of the daemon may do that itself: killed in the midst of it, the thread would wait for an answer
that only its own process could give, keep that process and its end of the mount from going away, and with it
whoever uses the mount. This process holds nothing of the mount open; when the daemon dies, the kernel answers
it with an error, and it ends with its standard input.

Told and answered in lines of JSON: a verb and its arguments, and 0 or the number of the error.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

__all__ = ["Hand"]

_JOIN_SECONDS: Final = 5.0


class Hand:
    """The process as the daemon sees it; it is started when it is first needed. For one thread.

    Paths are those of directories of the mount. Methods raise OSError.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process whose requests these are."""
        return self._started().pid

    def rename(self, folder: bytes, name: bytes, new_folder: bytes, new_name: bytes) -> None:
        self._tell("rename", folder, name, new_folder, new_name)

    def unlink(self, folder: bytes, name: bytes) -> None:
        self._tell("unlink", folder, name)

    def rmdir(self, folder: bytes, name: bytes) -> None:
        self._tell("rmdir", folder, name)

    def truncate(self, folder: bytes, name: bytes, size: int) -> None:
        self._tell("truncate", folder, name, size)

    def touch(self, folder: bytes, name: bytes) -> None:
        """Set the times of what has that name, which may be a link, to now."""
        self._tell("touch", folder, name)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            process.wait(_JOIN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._process

    def _tell(self, verb: str, *arguments: bytes | int) -> None:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        words = [os.fsdecode(one) if isinstance(one, bytes) else one for one in arguments]
        process.stdin.write(json.dumps([verb, *words]).encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise BrokenPipeError("the process that touches the mount has ended")
        error = int(answer)
        if error:
            raise OSError(error, os.strerror(error))


# -- what runs in the process ------------------------------------------------------------------------


@contextlib.contextmanager
def _folder(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _rename(folder: str, name: str, new_folder: str, new_name: str) -> None:
    with _folder(folder) as source, _folder(new_folder) as target:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def _unlink(folder: str, name: str) -> None:
    with _folder(folder) as source:
        os.unlink(name, dir_fd=source)


def _rmdir(folder: str, name: str) -> None:
    with _folder(folder) as source:
        os.rmdir(name, dir_fd=source)


def _truncate(folder: str, name: str, size: int) -> None:
    with _folder(folder) as source:
        os.truncate(f"/proc/self/fd/{source}/{name}", size)


def _touch(folder: str, name: str) -> None:
    with _folder(folder) as source:
        os.utime(name, dir_fd=source, follow_symlinks=False)


_VERBS: Final[dict[str, Callable[..., None]]] = {
    "rename": _rename,
    "unlink": _unlink,
    "rmdir": _rmdir,
    "truncate": _truncate,
    "touch": _touch,
}


def _obey(orders: IO[bytes], answers: IO[bytes]) -> None:
    for line in orders:
        verb, *arguments = json.loads(line)
        try:
            _VERBS[verb](*arguments)
            error = 0
        except OSError as problem:
            error = problem.errno or 5
        answers.write(b"%d\n" % error)
        answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        _obey(sys.stdin.buffer, sys.stdout.buffer)
