"""The daemon's hand in its own mount: a small process that makes, renames and removes nodes there on request.

No thread of the daemon may do that itself: killed in the midst of it, the thread would wait for an answer
that only its own process could give, keep that process and its end of the mount from going away, and with it
all programs that use the mount. This process holds nothing of the mount open; when the daemon dies, the
kernel answers it with an error, and it ends with its standard input.

It does nothing outside the mount, whatever stands in the way there, for names come from other devices. Each
is looked up in the directory that was opened before it, no symbolic link is followed, not even by the last
one, and nothing is entered that is mounted within the mount, or in its place.

Requests and answers are lines of JSON: a verb and its arguments, and 0 or the number of the error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

__all__ = ["Hand"]

_JOIN_SECONDS: Final = 5.0
_NODE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = _NODE | os.O_DIRECTORY
_MOUNT: Final = b"mnt_id:"  # in proc_pid_fdinfo(5)


class Hand:
    """The process as the daemon sees it; it is started when it is first needed. For one thread.

    *root* is where the mount is, *device* its number, "major:minor". Folders are paths within it, b"" is the
    root. Methods raise OSError.
    """

    def __init__(
        self,
        root: Path,
        device: str | None,
        start: Callable[..., subprocess.Popen[bytes]],
    ) -> None:
        self._start = start
        self._command = [sys.executable, "-I", "-S", __file__, os.fspath(root), device or ""]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process whose requests these are."""
        return self._started().pid

    def arrive(self, hidden: bytes, folder: bytes, arrivals: Sequence[tuple[int, bytes, int]]) -> None:
        """Let nodes appear in a folder: the number under which each is found in *hidden*, its name, its mode.
        One that cannot be made to is left out."""
        self._tell("arrive", hidden, folder, *(word for one in arrivals for word in one))

    def rename(self, folder: bytes, name: bytes, new_folder: bytes, new_name: bytes) -> None:
        self._tell("rename", folder, name, new_folder, new_name)

    def unlink(self, folder: bytes, name: bytes) -> None:
        self._tell("unlink", folder, name)

    def rmdir(self, folder: bytes, name: bytes) -> None:
        self._tell("rmdir", folder, name)

    def write(self, folder: bytes, name: bytes, size: int) -> None:
        """Open a file, cut it off at *size*, and close it."""
        self._tell("write", folder, name, size)

    def touch(self, folder: bytes, name: bytes) -> None:
        """Set the times of the node with that name, which may be a link, to now."""
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
            self._process = self._start(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
            raise _failure(error)


# -- what runs in the process ------------------------------------------------------------------------


class _Mount:
    """The mount as the process sees it: all verbs, and the only way to anything within."""

    def __init__(self, root: str, device: str) -> None:
        self._root = root
        self._device = device

    @contextlib.contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        descriptor = os.open(self._root, _DIRECTORY)
        try:
            device = os.fstat(descriptor).st_dev
            if f"{os.major(device)}:{os.minor(device)}" != self._device:
                raise _failure(errno.EXDEV)
            for name in path.split("/") if path else ():
                above, descriptor = descriptor, _open_in(descriptor, name, _DIRECTORY)
                os.close(above)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _node(self, folder: str, name: str) -> Iterator[str]:
        """A path to the node that has the name now, and to no other that may have it soon."""
        with self._folder(folder) as source:
            descriptor = _open_in(source, name, _NODE)
        try:
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

    def arrive(self, hidden: str, folder: str, *words: str | int) -> None:
        with self._folder(hidden) as source, self._folder(folder) as target:
            for number, name, mode in zip(words[::3], words[1::3], words[2::3], strict=True):
                with contextlib.suppress(OSError):
                    _appear(source, str(number), target, _plain(str(name)), int(mode))

    def rename(self, folder: str, name: str, new_folder: str, new_name: str) -> None:
        with self._folder(folder) as source, self._folder(new_folder) as target:
            os.rename(_plain(name), _plain(new_name), src_dir_fd=source, dst_dir_fd=target)

    def unlink(self, folder: str, name: str) -> None:
        with self._folder(folder) as source:
            os.unlink(_plain(name), dir_fd=source)

    def rmdir(self, folder: str, name: str) -> None:
        with self._folder(folder) as source:
            os.rmdir(_plain(name), dir_fd=source)

    def write(self, folder: str, name: str, size: int) -> None:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC  # no lease is waited for
        with self._node(folder, name) as node:
            descriptor = os.open(node, flags)
            try:
                os.ftruncate(descriptor, size)
            finally:
                os.close(descriptor)

    def touch(self, folder: str, name: str) -> None:
        with self._node(folder, name) as node:
            os.utime(node)


def _failure(number: int) -> OSError:
    """As `hybrisfs.errors.failure`: the process runs this file alone, without the package."""
    return OSError(number, os.strerror(number))


def _plain(name: str) -> str:
    """The name. Raises OSError when it is a way to somewhere else."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise _failure(errno.EINVAL)
    return name


def _open_in(folder: int, name: str, flags: int) -> int:
    """Open the node with the name in a folder. Raises OSError; also when something else is mounted there."""
    descriptor = os.open(_plain(name), flags, dir_fd=folder)
    if _mount_of(descriptor) == _mount_of(folder):
        return descriptor
    os.close(descriptor)
    raise _failure(errno.EXDEV)


def _mount_of(descriptor: int) -> int:
    """The kernel's number of the mount that something open is in: bind mounts have their own, too."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as lines:
        return next(int(line[len(_MOUNT) :]) for line in lines if line.startswith(_MOUNT))


def _appear(source: int, number: str, target: int, name: str, mode: int) -> None:
    """Make a node, and move it to the name: programs watch for the one or for the other."""
    if stat.S_ISDIR(mode):
        with contextlib.suppress(OSError):
            os.rename(number, name, src_dir_fd=source, dst_dir_fd=target)
        # Made last: a program that watches it from then on must not get an event that it was moved.
        os.mkdir(name, dir_fd=target)
        return
    with contextlib.suppress(PermissionError):  # not every user may make a device
        if stat.S_ISREG(mode):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, dir_fd=target))
        elif stat.S_ISLNK(mode):
            os.symlink(number, name, dir_fd=target)
        else:
            os.mknod(name, mode, dir_fd=target)
    os.rename(number, name, src_dir_fd=source, dst_dir_fd=target)


def _obey(mount: _Mount, orders: IO[bytes], answers: IO[bytes]) -> None:
    verbs: dict[str, Callable[..., None]] = {
        "arrive": mount.arrive,
        "rename": mount.rename,
        "unlink": mount.unlink,
        "rmdir": mount.rmdir,
        "write": mount.write,
        "touch": mount.touch,
    }
    for line in orders:
        verb, *arguments = json.loads(line)
        try:
            verbs[verb](*arguments)
            error = 0
        except OSError as problem:
            error = problem.errno or errno.EIO
        answers.write(b"%d\n" % error)
        answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        _obey(_Mount(*sys.argv[1:]), sys.stdin.buffer, sys.stdout.buffer)
