"""The `rclone` of this process: a child that is started when it is first needed, and again after it has died.

All clouds at rclone's remotes share one child, `rclone rcd --rc-serve`. Why this of rclone's interfaces: it
serves all remotes at once, reads objects and their ranges straight from the backend, and says of an upload
that it is done when the provider has said so. `rclone serve` in all its kinds needs a process per folder, and
`serve webdav` and `serve s3` keep files in a cache between. Debian's rclone 1.60 listens to TCP only (to Unix
sockets from 1.61 on), so the child listens on the loopback interface, on a port that the kernel chooses and
that rclone tells, and wants a password of 32 random bytes with each request.

The password goes to the child through a pipe and its environment, not its arguments. The other end of the
pipe is ours alone: when this process ends, however it does, the pipe closes, and the shell that waits for
that ends rclone. What rclone logs is read and forgotten, but for the last lines, which say why it died.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import BinaryIO, Final

__all__ = ["RCLONE", "USER", "Endpoint", "NoRcloneError", "Rclone", "RcloneEndedError", "version"]

_PATIENCE: Final = 30.0  # seconds until rclone says where it listens
_GRACE: Final = 0.5  # seconds from a broken connection to the end of a child that has died
_KEPT: Final = 5  # lines of its log
_LONGEST: Final = 4096  # bytes of one line that are looked at
_LISTENS: Final = re.compile(r"Serving remote control on http://127\.0\.0\.1:(\d{1,5})/")
_TIME: Final = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d ")

USER: Final = "hybrisfs"

# The pipe is this shell's standard input. Its first line is the password; nothing follows but its end.
_SHELL: Final = f"""
read -r RCLONE_RC_PASS
export RCLONE_RC_PASS RCLONE_RC_USER={USER}
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
{{ read -r nothing <&3; kill $child; sleep 5; kill -KILL $child; }} >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait $child
kill $watcher
"""

_ARGUMENTS: Final = (
    *("rcd", "--rc-serve", "--rc-addr", "127.0.0.1:0", "--rc-htpasswd", "", "--rc-files", ""),
    *("--ask-password=false", "--log-file", "", "--use-json-log=false", "--stats", "0"),
    *("--retries", "1", "--low-level-retries", "1"),  # drivers do not try again
    *("--contimeout", "10s", "--timeout", "30s"),
    # Each upload takes as much memory, whatever its size. What is larger is passed on as it comes, or by a
    # temporary file to providers that want to know the size first.
    *("--streaming-upload-cutoff", "1Mi", "--buffer-size", "0"),
    "--no-check-dest",  # or a file would be deleted before another one is moved to its place
)


class NoRcloneError(Exception):
    """There is no `rclone` on this machine, or it does not start. The text says why."""


class RcloneEndedError(Exception):
    """The child has died in the midst of a request. The text is what it said last."""


@dataclass(frozen=True)
class Endpoint:
    """Where a child listens."""

    port: int
    password: str = field(repr=False)


def version() -> str:
    """What rclone says it is, as "rclone v1.60.1". Raises `NoRcloneError`."""
    program = shutil.which("rclone")
    if program is None:
        raise NoRcloneError("the program rclone is not installed")
    try:
        said = subprocess.run([program, "version"], capture_output=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NoRcloneError(f"rclone does not tell its version: {error}") from error
    first = said[:_LONGEST].decode("utf-8", "replace").partition("\n")[0]
    return "".join(one for one in first if one.isprintable())


class Rclone:
    """One child at a time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._endpoint: Endpoint | None = None
        self._said: deque[str] = deque(maxlen=_KEPT)

    def endpoint(self) -> Endpoint:
        """Where the child listens; starts one if there is none. Raises `NoRcloneError`."""
        with self._lock:
            if self._endpoint is None or not self._lives():
                self._endpoint = self._start()
            return self._endpoint

    def last_words(self, endpoint: Endpoint) -> str | None:
        """What the child that listened there said before it died; None when it lives, or another one does."""
        with self._lock:
            shell, said, listener = self._shell, self._said, self._listener
            if shell is None or listener is None or self._endpoint != endpoint:
                return None
        try:
            shell.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return None
        listener.join(_GRACE)  # what it said last may be in the pipe yet
        return said[-1] if said else ""

    def _lives(self) -> bool:
        return self._shell is not None and self._shell.poll() is None

    def _start(self) -> Endpoint:
        program = shutil.which("rclone")
        if program is None:
            raise NoRcloneError("the program rclone is not installed")
        self._end()
        password = token_hex(32)
        try:
            shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, "hybrisfs-rclone", program, *_ARGUMENTS],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for us, not for it
            )
        except OSError as error:
            raise NoRcloneError(f"rclone does not start: {error}") from error
        self._shell = shell
        assert shell.stdin is not None
        assert shell.stderr is not None
        self._said = deque(maxlen=_KEPT)
        heard: list[int] = []
        told = threading.Event()
        # A program that fills a pipe that nobody reads waits for ever.
        listener = threading.Thread(
            target=_listen, args=(shell.stderr, self._said, heard.append, told), name="rclone", daemon=True
        )
        self._listener = listener
        listener.start()
        try:
            shell.stdin.write(f"{password}\n".encode())
            shell.stdin.flush()
        except BrokenPipeError:
            told.wait(_PATIENCE)
        if not told.wait(_PATIENCE) or not heard:
            self._end()
            raise NoRcloneError(f"rclone does not start: {' '.join(self._said) or 'it says nothing'}")
        return Endpoint(heard[0], password)

    def _end(self) -> None:
        """Have the child end if it has not, and its shell."""
        if self._shell is not None:
            if self._shell.stdin is not None:
                self._shell.stdin.close()
            self._shell.wait()  # five seconds, if the child hangs
            self._shell = None


def _listen(log: BinaryIO, said: deque[str], heard: Callable[[int], None], told: threading.Event) -> None:
    """Read the log of a child to its end; `told` is set when that says a port, or ends."""
    with log:
        while line := log.readline(_LONGEST):
            text = line.decode("utf-8", "replace").strip()
            if not told.is_set() and (found := _LISTENS.search(text)) is not None:
                heard(int(found[1]))
                told.set()
            said.append(_TIME.sub("", text))
    told.set()


RCLONE: Final = Rclone()
"""Of this process."""
