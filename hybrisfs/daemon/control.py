"""The control socket: one thread accepts, one thread per connection reads requests and answers them.

Only processes of the daemon's own user are heard. A client that closes its connection stops its command,
at the latest when that next reports progress.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from hybrisfs import VERSION
from hybrisfs.api.request import Part
from hybrisfs.errors import DaemonError, HybrisError, InternalError, UsageError
from hybrisfs.polling import readable
from hybrisfs.wire import PROTOCOL, Channel, ChannelError, Message, bind_socket

__all__ = ["ControlLimits", "ControlServer", "Handler", "Progress"]

log = logging.getLogger(__name__)

Progress: TypeAlias = Callable[[Message], None]
Handler: TypeAlias = Callable[[str, Message, Progress], Message]
"""Carries out a command with its arguments; raises `HybrisError`."""

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_CLIENTS: Final = 512
_GOODBYE: Final = 5.0  # seconds that commands have to notice that the daemon stops


class ControlLimits(Struct, frozen=True):
    """How much clients may ask of the daemon."""

    clients: int = _CLIENTS
    """Served at a time."""
    slow: int = _CLIENTS * 7 // 8
    """Of these with commands that may wait long. The others can still ask what is going on."""
    turned_away: int = 64
    """Further clients connected at a time, until they have the answer that there are too many."""
    turned_away_seconds: float = 10.0
    """In which such a client says what it wants: it listens only then."""
    progress_every: float = 0.1
    """Seconds between two reports of progress."""
    part_seconds: float = 30.0
    """In which a client takes a part of an answer: something is held open for it until it has them all."""

    @classmethod
    def within(cls, descriptors: int) -> ControlLimits:
        """For a process that may have so many: most of them are for its volumes."""
        clients = _CLIENTS if descriptors == resource.RLIM_INFINITY else min(_CLIENTS, descriptors // 8)
        return cls(clients=clients, slow=clients * 7 // 8)


_USUAL: Final = ControlLimits()


class ControlServer:
    """Answers clients on the unix socket `path` by calling `handle`, from `start` to `stop`."""

    def __init__(
        self,
        path: Path,
        handle: Handler,
        listener: socket.socket | None = None,
        limits: ControlLimits = _USUAL,
        slow: Collection[str] = (),
    ) -> None:
        """*listener* listens at *path* already, and goes on doing so for others after `stop`. *slow*: the
        commands that may wait long."""
        self._limits = limits
        self._slow = slow
        self._room_for_slow = threading.Semaphore(limits.slow)
        self._path = path
        self._inherited = listener
        self._wake, self._waker = socket.socketpair()
        self._handle = handle
        self._lock = threading.Lock()
        self._conversations: dict[threading.Thread, Channel] = {}
        self._turned_away: set[threading.Thread] = set()  # of these
        self._stopping = False
        self._listener: socket.socket | None = None
        self._own_file: tuple[int, int] | None = None
        self._acceptor = threading.Thread(target=self._accept, name="control", daemon=True)

    def start(self) -> None:
        """Listen. What a killed daemon left at the path is replaced. Raises `OSError`."""
        if self._inherited is not None:
            self._listener = self._inherited
        else:
            self._path.unlink(missing_ok=True)
            self._listener = bind_socket(self._path)
            self._own_file = _identity(self._path)
        self._listener.setblocking(False)
        self._acceptor.start()

    def stop(self) -> None:
        """Stop listening, end all conversations, wait a moment for their commands. Idempotent."""
        with self._lock:
            self._stopping = True
            conversations = list(self._conversations.items())
        if self._listener is None:
            return
        # The service manager may listen there by now: it has a file of its own under this name.
        if self._inherited is None and _identity(self._path) == self._own_file:
            self._path.unlink(missing_ok=True)
        self._waker.close()
        self._acceptor.join()
        self._listener.close()
        self._wake.close()
        for _, channel in conversations:
            channel.close()
        deadline = time.monotonic() + _GOODBYE
        for thread, _ in conversations:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                log.warning("a command is still running: %s", thread.name)

    def _accept(self) -> None:
        listener = self._listener
        assert listener is not None
        while not self._stopping:
            try:
                readable([listener, self._wake])
                connection, _ = listener.accept()
            except BlockingIOError:  # woken up, or the client has gone again
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ECONNABORTED):
                    log.error("cannot accept a client: %s", error.strerror)
                    time.sleep(self._limits.progress_every)
                    continue
                if not self._stopping:
                    log.critical("the control socket is broken: %s", error)
                return
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        """Give the connection a thread, unless it is a stranger's or one too many by far."""
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        channel = Channel(connection)
        limits = self._limits
        with self._lock:
            ours = uid == os.getuid()
            turned_away = len(self._turned_away)
            room = len(self._conversations) - turned_away < limits.clients
            talks = ours and not self._stopping and (room or turned_away < limits.turned_away)
            if talks:
                if not room:
                    connection.settimeout(limits.turned_away_seconds)
                talks = self._begin(channel, pid, served=room)
        if not ours:
            log.warning("refused process %d of user %d", pid, uid)
        elif not room:
            log.warning("refused process %d: %d clients are connected already", pid, limits.clients)
        if not talks:
            channel.close()

    def _begin(self, channel: Channel, pid: int, *, served: bool) -> bool:
        """Whether there is a thread for the conversation. The caller holds the lock."""
        thread = threading.Thread(
            target=self._converse, args=(channel, served), name=f"client {pid}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, or too little memory
            log.error("cannot serve process %d: %s", pid, error)
            return False
        self._conversations[thread] = channel
        if not served:
            self._turned_away.add(thread)
        return True

    def _converse(self, channel: Channel, served: bool) -> None:
        try:
            channel.send({"hello": {"protocol": PROTOCOL, "version": VERSION}})
            while (request := channel.receive()) is not None:
                if not served:
                    error = _too_many(f"{self._limits.clients} clients are connected already")
                    channel.send({"error": _error_record(error)})
                    return
                self._answer(channel, request)
        except ChannelError as error:
            log.debug("a client is gone: %s", error)
        finally:
            channel.close()
            with self._lock:
                del self._conversations[threading.current_thread()]
                self._turned_away.discard(threading.current_thread())

    @contextmanager
    def _room_for(self, command: str) -> Iterator[None]:
        """Raises DaemonError when too many clients wait already."""
        if command not in self._slow:
            yield
            return
        if not self._room_for_slow.acquire(blocking=False):
            raise _too_many(f"{self._limits.slow} clients wait for clouds already")
        try:
            yield
        finally:
            self._room_for_slow.release()

    def _answer(self, channel: Channel, request: Message) -> None:
        command, arguments = request.get("command"), request.get("arguments")
        try:
            if not isinstance(command, str) or not isinstance(arguments, dict):
                raise UsageError("not a request")
            with self._room_for(command):
                answer = {"result": self._handle(command, arguments, _throttled(channel, self._limits))}
        except ChannelError:
            raise
        except HybrisError as error:
            answer = {"error": _error_record(error)}
        except Exception:
            log.exception("command %.80r failed unexpectedly", command)
            bug = InternalError("HybrisFS met something it did not expect", "", "The details are in the log.")
            answer = {"error": _error_record(bug)}
        channel.send(answer)


def _too_many(why: str) -> DaemonError:
    return DaemonError("the daemon has too much to do", why, "Try again when some of them have ended.")


def _error_record(error: HybrisError) -> Message:
    return {"kind": error.kind, "message": str(error), "exit_code": error.exit_code}


def _throttled(channel: Channel, limits: ControlLimits) -> Progress:
    """Send progress now and then, and all parts of an answer; raise `ChannelError` once nobody listens."""
    last = -limits.progress_every

    def progress(message: Message) -> None:
        nonlocal last
        now = time.monotonic()
        if isinstance(message, Part):
            channel.send({"progress": message}, within=limits.part_seconds)
        elif now - last >= limits.progress_every:
            last = now
            channel.send({"progress": message})

    return progress


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
