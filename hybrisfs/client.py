"""The daemon's client: the one door through which `cli/` reaches HybrisFS."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import Struct

from hybrisfs import VERSION, service_manager
from hybrisfs.api.request import LongRequest, Question, Request
from hybrisfs.core_dumps import forbid_core_dumps
from hybrisfs.daemon.only_one import ProcessLock, end_daemon, holder, is_stopped
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import (
    ConditionError,
    DaemonError,
    HybrisError,
    UnavailableError,
    UnknownVolumeError,
    UsageError,
    from_wire,
)
from hybrisfs.home import Home, autostart_folder, session_bus
from hybrisfs.polling import readable
from hybrisfs.shown import clean, quoted, shown
from hybrisfs.verdict import judge, machines_only
from hybrisfs.wire import PROTOCOL, Channel, ChannelError, Message, connect_socket

__all__ = [
    "VERSION",
    "autostart_folder",
    "Client",
    "ConditionError",
    "DaemonError",
    "HybrisError",
    "Message",
    "NotRunningError",
    "UnavailableError",
    "UnknownVolumeError",
    "UsageError",
    "answer_at_once",
    "clean",
    "cloud_kinds",
    "examine",
    "forbid_core_dumps",
    "gateway_key_file",
    "install_service",
    "judge",
    "log_path",
    "log_tail",
    "panel_file",
    "machines_only",
    "quoted",
    "record_crash",
    "relay_folder",
    "remove_service",
    "scratch_folder",
    "serve",
    "session_bus",
    "service_status",
    "shown",
    "start_daemon",
    "stop_daemon",
    "umount_without_daemon",
    "volume_names",
    "serve_users_file",
]

_GREETING_WITHIN: Final = 60.0  # seconds; a daemon that systemd starts for us mounts first
_LOOK_EVERY: Final = 1.0  # seconds; whether a daemon that does not greet stands still
_ENDS_WITHIN: Final = 3.0  # seconds for which a daemon that ends may hang up on us
_REDIAL_AFTER: Final = 0.05  # seconds
_AT_ONCE: Final = 0.5  # seconds; a person has pressed the key for a completion, and waits


_Answer = TypeVar("_Answer")
_News = TypeVar("_News")


class NotRunningError(DaemonError):
    """No daemon runs, and none was to be started."""


class Client:
    """One conversation with the daemon. A context manager; not for use from several threads."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @classmethod
    def connect(
        cls, home: Home | None = None, *, start: bool = True, environment: Environment = SYSTEM
    ) -> Client:
        """Reach the daemon, starting it if need be and wanted. One that ends may hang up on us for a while.

        Raises `NotRunningError` when it does not run and `start` is false, `DaemonError` when it
        cannot be started, does not answer, or speaks another version of the protocol.
        """
        home = home or Home.from_environment()
        try:
            return cls(_reach(home, environment))
        except NotRunningError:
            if not start:
                raise
        start_daemon(home, lambda: _runs(home), environment)
        return cls(_reach(home, environment))

    @overload
    def call(self, request: Request[_Answer]) -> _Answer: ...
    @overload
    def call(
        self, request: LongRequest[_Answer, _News], progress: Callable[[_News], None] | None = None
    ) -> _Answer: ...
    def call(self, request: Question[_Answer], progress: Callable[[Any], None] | None = None) -> _Answer:
        """Have the daemon carry out a request; return its answer. *progress* hears how far it is.

        Raises the `HybrisError` that the daemon reports, `DaemonError` when it dies before the answer, or
        answers in a way that this program does not know.
        """

        def tell(message: Message) -> None:
            if progress is not None and isinstance(request, LongRequest):
                progress(request.news_from(message))

        try:
            return request.answer_from(self.exchange(request.command, request.arguments, tell))
        except msgspec.ValidationError as error:
            raise DaemonError(
                f"the daemon answers {request.command} in a way that this command, {VERSION}, does not know",
                str(error),
                "hybrisfs daemon --stop ends it, and the next command starts another.",
            ) from error

    def exchange(
        self,
        command: str,
        arguments: Message | None = None,
        progress: Callable[[Message], None] | None = None,
    ) -> Message:
        """The same with messages instead of records."""
        try:
            self._channel.send({"command": command, "arguments": arguments or {}})
            while (answer := self._channel.receive()) is not None:
                if isinstance(answer.get("progress"), dict):
                    if progress:
                        progress(answer["progress"])
                elif isinstance(answer.get("result"), dict):
                    result: Message = answer["result"]
                    return result
                elif isinstance(answer.get("error"), dict):
                    raise from_wire(str(answer["error"].get("kind")), str(answer["error"].get("message")))
                else:
                    raise ChannelError("not a message")
        except ChannelError as error:
            raise _lost(str(error)) from error
        raise _lost("it closed the connection")

    def close(self) -> None:
        """End the conversation, and with it a command that still runs. Idempotent."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def answer_at_once(request: Request[_Answer]) -> _Answer | None:
    """The answer of a daemon that runs and has time; None else, for whatever reason. Starts no daemon."""
    home = Home.from_environment()
    try:
        if holder(home.daemon_lock) is None:  # where systemd listens on the socket, a dial would start one
            return None
        connection = connect_socket(home.socket, _AT_ONCE)
        channel = _greeted(connection, _AT_ONCE)
        connection.settimeout(_AT_ONCE)
        with Client(channel) as client:
            return client.call(request)
    except (OSError, ChannelError, HybrisError):
        return None


def cloud_kinds() -> list[tuple[str, str]]:
    """The kinds of clouds: how the URL of one is written, and what it is."""
    from backends.registry import drivers

    return [(driver.kind.form, driver.kind.what) for driver in drivers()]


def examine() -> list[Message]:
    """What `hybrisfs.doctor` finds: each with "check", "result" (ok, warn, bad), "what" and "advice"."""
    from hybrisfs.doctor.examination import examine as examine_home

    return [finding.as_dict() for finding in examine_home(Home.from_environment())]


def log_path() -> Path:
    """Where a daemon in the background writes its log."""
    return Home.from_environment().log


def panel_file() -> Path:
    """What a daemon that runs says to panels: an `hybrisfs.api.status.PanelFile`."""
    return Home.from_environment().panels


def scratch_folder() -> Path:
    """A folder that only this user can read, for files that this program and the daemon hand each other."""
    return Home.from_environment().runtime


def relay_folder() -> Path:
    """Where the relay of this user keeps its files by default."""
    return Home.from_environment().data / "relay"


def gateway_key_file(volume: str) -> Path:
    """The file of the key to the volume's S3 gateway. Raises UsageError for an illegal name."""
    return Home.from_environment().gateway_key(volume)


def serve_users_file(volume: str) -> Path:
    """The file of those who may use what is served of the volume. Raises UsageError for an illegal
    name."""
    return Home.from_environment().serve_users(volume)


def serve() -> int:
    """Be the daemon, in the foreground, until SIGTERM or SIGINT; return the exit code."""
    from hybrisfs.daemon.main import main

    return main([])


def volume_names() -> list[str]:
    """The volumes of this user, sorted, without asking the daemon; none if they cannot be read."""
    try:
        return Home.from_environment().volume_names()
    except OSError:
        return []


def stop_daemon(home: Home | None = None) -> None:
    """Have the daemon unmount everything and end; return when it has.

    Works on a daemon of any version, also on one that stands still. Raises `NotRunningError`, or
    `DaemonError` when it goes on running.
    """
    home = home or Home.from_environment()
    if not end_daemon(home):
        raise _not_running()


def umount_without_daemon(target: str) -> tuple[Path, bool] | None:
    """Unmount what a dead daemon left behind at `target`, a volume or a folder; forget that it is wanted.

    Returns the folder, and whether a dead mount had to be removed there; None, with nothing done, when a
    daemon has come to life. Raises `HybrisError` when there is nothing of that kind or it stays mounted.
    """
    home = Home.from_environment()
    if not home.runtime.is_dir():
        return _umount_ruin(home, target)
    with ProcessLock(home.start_lock, SYSTEM) as starting:  # so that nobody else starts one
        starting.acquire()
        return None if _runs(home) else _umount_ruin(home, target)


def _umount_ruin(home: Home, target: str) -> tuple[Path, bool]:
    from hybrisfs.daemon.wanted_mounts import WantedMounts, unlock
    from hybrisfs.fuse import clear_stale

    wanted = WantedMounts(home.state, SYSTEM)
    recorded = {name: mount.directory for name, mount in wanted.all().items()}
    directory = recorded.get(target, Path(target).absolute())
    names = [name for name, place in recorded.items() if place == directory]
    try:
        stale = clear_stale(directory)
        for name in names:
            wanted.remove(name)
        if stale or names:
            unlock(directory)
    except OSError as error:
        raise HybrisError(f"cannot unmount {directory}", str(error)) from error
    if not stale and not names:
        raise HybrisError(f"{target} is not mounted", "the daemon is not running")
    return directory, stale


def install_service() -> Message:
    """Have systemd run the daemon, as `hybrisfs.service_manager.status` then says. Raises `HybrisError`."""
    from hybrisfs.service_manager import install, require_manager

    home = Home.from_environment()
    require_manager()  # else what is mounted would be unmounted for nothing
    home.prepare()
    with contextlib.suppress(NotRunningError):
        stop_daemon(home)
    return install(home)


def remove_service() -> tuple[str, list[str]]:
    """The folder with the user's keys and data, which stay, and the files that were removed."""
    from hybrisfs.service_manager import remove

    return str(Home.from_environment().state), remove()


def service_status() -> Message:
    """What `hybrisfs.service_manager.status` says."""
    from hybrisfs.service_manager import status

    return status(Home.from_environment())


def record_crash(report: str) -> Path:
    """Append the report of a bug in the client to a file next to the daemon's log; returns that file."""
    path = log_path().with_name("cli.log")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(
            f"{datetime.now().astimezone().isoformat(timespec='seconds')} HybrisFS {VERSION}\n{report}\n"
        )
    return path


def _dial(home: Home) -> socket.socket:
    try:
        return connect_socket(home.socket)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise _not_running() from error
    except OSError as error:
        raise DaemonError(
            f"cannot reach the daemon at {home.socket}", error.strerror or str(error)
        ) from error


def _not_running() -> NotRunningError:
    return NotRunningError("the daemon is not running", "", "hybrisfs mount starts it.")


def _runs(home: Home) -> bool:
    try:
        _reach(home, SYSTEM).close()
    except NotRunningError:
        return False
    return True


def _reach(home: Home, environment: Environment) -> Channel:
    """Dial until the daemon greets; one that is just ending may hang up on us before it is gone."""
    give_up = environment.monotonic() + _ENDS_WITHIN
    while True:
        connection = _dial(home)
        try:
            _await_greeting(home, connection, environment)
            return _greeted(connection)
        except ChannelError as error:
            connection.close()
            if environment.monotonic() > give_up:
                raise _lost(str(error)) from error
        except DaemonError:
            connection.close()
            raise
        environment.sleep(_REDIAL_AFTER)


def _await_greeting(home: Home, connection: socket.socket, environment: Environment) -> None:
    """Return when the daemon says something. Raises `ChannelError`; `DaemonError` when it stands still."""
    give_up = environment.monotonic() + _GREETING_WITHIN
    while not readable([connection], _LOOK_EVERY):
        pid = holder(home.daemon_lock)
        if pid is not None and is_stopped(pid):
            raise DaemonError(
                f"the daemon (process {pid}) is stopped",
                "it answers no command, and programs that use a mounted volume wait for it",
                f"kill -CONT {pid} lets it go on.",
            )
        if environment.monotonic() > give_up:
            raise ChannelError("it does not greet: timed out")


def _greeted(connection: socket.socket, within: float = _GREETING_WITHIN) -> Channel:
    """Hear the daemon's greeting, within so many seconds, and check that it speaks our protocol. Raises
    `ChannelError`."""
    connection.settimeout(within)
    channel = Channel(connection)
    message = channel.receive()
    hello = message.get("hello") if message else None
    if not isinstance(hello, dict):
        raise ChannelError("it does not greet" if message else "it closed the connection")
    if hello.get("protocol") != PROTOCOL:
        raise DaemonError(
            f"the running daemon is HybrisFS {hello.get('version')}, this command is {VERSION}",
            "they do not understand each other",
            "hybrisfs daemon --stop ends the old one.",
        )
    connection.settimeout(None)
    return channel


def _lost(why: str) -> DaemonError:
    return DaemonError("lost the daemon", why, f"Its log is {log_path()}.")


# -- starting the daemon in the background, once, however many clients want it at the same time ---------


_TAIL: Final = 2048  # bytes of the log that are shown when the daemon dies at its start
_PACKAGES: Final = Path(__file__).resolve().parents[1]


class StartLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    ready_within: float = 60.0
    """Seconds that a daemon has to begin."""


def start_daemon(home: Home, runs: Callable[[], bool], environment: Environment) -> None:
    """Start the daemon, or have systemd do it, unless `runs` says that it runs; return when it answers.

    Raises `HybrisError` when the folders cannot be made, `DaemonError` with the end of the log when
    the daemon dies or is not ready in time.
    """
    ready_within = environment.limits.of(StartLimits).ready_within
    home.prepare()
    with ProcessLock(home.start_lock, environment) as starting:
        starting.acquire()
        if runs() or service_manager.start(home):
            return
        # Python looks for modules in the working directory first: it must not be the user's.
        logged = home.log.stat().st_size if home.log.exists() else 0
        try:
            done = subprocess.run(
                [sys.executable, "-m", "hybrisfs.daemon", "--background"],
                cwd=_PACKAGES,
                env=home.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=ready_within,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            why = f"it was not ready within {ready_within:.0f} seconds"
            raise _start_error(home, why, logged) from error
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip() or f"it ended with status {done.returncode}"
            raise _start_error(home, why, logged)


def log_tail(home: Home, start: int = 0) -> str:
    """The last lines of the daemon's log after byte `start`; "" when there are none."""
    try:
        with home.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start if start <= size else 0, size - _TAIL))
            return log.read().decode(errors="replace").strip()
    except OSError:
        return ""


def _start_error(home: Home, why: str, logged: int) -> DaemonError:
    tail = log_tail(home, logged)
    shown = f"The end of its log, {home.log}:\n{tail}" if tail else f"Its log is {home.log}."
    return DaemonError("cannot start the daemon", why, shown)
