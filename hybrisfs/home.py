"""Where HybrisFS keeps its files. The only module that reads the environment.

By default the XDG folders, so that one user has one of each; with $HYBRISFS_HOME everything is below
that one folder, so that several devices can live on one machine.

folder    holds                                   by default                    with $HYBRISFS_HOME
config    volumes, clouds and their secrets       ~/.config/hybrisfs            .../config
state     keys, databases, pending data, log      ~/.local/state/hybrisfs       .../state
cache     what the clouds hold, too               ~/.cache/hybrisfs             .../cache
data      the clouds of `hybrisfs quickstart`     ~/.local/share/hybrisfs       .../data
runtime   the daemon's socket and locks           STATE/runtime                 .../runtime

Each is made on first use with mode 0700. `config`, `state` and `cache` have one folder per volume. The
runtime folder does not depend on the session: a command of cron, with nobody logged in, and one of a session
must find the same daemon. $XDG_RUNTIME_DIR/hybrisfs is a symbolic link to it while there is a session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hybrisfs.environment import SYSTEM, make_directory
from hybrisfs.errors import HybrisError, UsageError

__all__ = [
    "Home",
    "autostart_folder",
    "check_volume_name",
    "has_screen",
    "logs_to_journal",
    "overlaps",
    "service_manager_socket",
    "session_bus",
    "take_listening_sockets",
    "user_units",
    "watchdog_seconds",
]

_XDG: Final = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
_VOLUME_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one user, or of one device under `$HYBRISFS_HOME`."""

    config: Path
    state: Path
    cache: Path
    data: Path
    runtime: Path
    default_mountpoint: Path
    root: Path | None = None  # the folder that holds them all, when it was chosen by $HYBRISFS_HOME
    session: Path | None = None  # where a session has its runtime folder, when there is one

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Home:
        """The folders that `environment` (by default the process's) asks for. Makes none of them."""
        values = os.environ if environment is None else environment
        if values.get("HYBRISFS_HOME"):
            return Home.below(Path(values["HYBRISFS_HOME"]).absolute())
        user = Path(values["HOME"]) if values.get("HOME") else Path.home()
        state = _xdg(values, "XDG_STATE_HOME", user / ".local/state") / "hybrisfs"
        return Home(
            config=_xdg(values, "XDG_CONFIG_HOME", user / ".config") / "hybrisfs",
            state=state,
            cache=_xdg(values, "XDG_CACHE_HOME", user / ".cache") / "hybrisfs",
            data=_xdg(values, "XDG_DATA_HOME", user / ".local/share") / "hybrisfs",
            runtime=state / "runtime",
            default_mountpoint=user / "HybrisFS",
            session=_xdg(values, "XDG_RUNTIME_DIR", Path(f"/run/user/{os.getuid()}")),
        )

    @staticmethod
    def below(root: Path) -> Home:
        """All folders below `root`, an absolute path."""
        return Home(
            config=root / "config",
            state=root / "state",
            cache=root / "cache",
            data=root / "data",
            runtime=root / "runtime",
            default_mountpoint=root / "HybrisFS",
            root=root,
        )

    def environment(self) -> dict[str, str]:
        """The environment of a child process that is to use these folders, whatever its working directory."""
        return {**os.environ, **({"HYBRISFS_HOME": str(self.root)} if self.root else {})}

    def variables(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """By which variables somebody has chosen these folders: none, for the usual ones."""
        if self.root is not None:
            return {"HYBRISFS_HOME": str(self.root)}
        values = os.environ if environment is None else environment
        return {name: values[name] for name in _XDG if values.get(name)}

    @property
    def socket(self) -> Path:
        """The daemon's control socket."""
        return self.runtime / "daemon.sock"

    @property
    def daemon_lock(self) -> Path:
        """Held by the daemon."""
        return self.runtime / "daemon.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the daemon's parent, where there is one."""
        return self.runtime / "supervisor.lock"

    @property
    def start_lock(self) -> Path:
        """Held by a program that starts a daemon, until the daemon is ready."""
        return self.runtime / "start.lock"

    @property
    def credentials(self) -> Path:
        """The secrets of clouds, where the provider's own configuration or the keyring does not have them."""
        return self.config / "credentials.json"

    @property
    def prices(self) -> Path:
        """What clouds charge this user, where that is not what the list prices say."""
        return self.config / "prices.json"

    @property
    def panels(self) -> Path:
        """What a daemon that runs says to panels: an `hybrisfs.api.status.PanelFile`."""
        return self.runtime / "status.json"

    @property
    def log(self) -> Path:
        """The log of a daemon that runs in the background."""
        return self.state / "daemon.log"

    def volume_names(self) -> list[str]:
        """The volumes whose configuration folder is not empty, sorted. Raises `OSError`."""
        folder = self.config / "volumes"
        if not folder.is_dir():
            return []
        volumes = (path for path in folder.iterdir() if _VOLUME_NAME.fullmatch(path.name) and path.is_dir())
        return sorted(path.name for path in volumes if any(path.iterdir()))

    def volume_config(self, name: str) -> Path:
        """The volume's configuration folder. Raises `UsageError` for an illegal name."""
        return self.config / "volumes" / check_volume_name(name)

    def volume_state(self, name: str) -> Path:
        """The volume's keys, database and pending data. Raises `UsageError` for an illegal name."""
        return self.state / "volumes" / check_volume_name(name)

    def gateway_key(self, name: str) -> Path:
        """What clients of the volume's S3 gateway have to know. Raises `UsageError` for an illegal name."""
        return self.config / "s3-keys" / f"{check_volume_name(name)}.json"

    def serve_users(self, name: str) -> Path:
        """The users of hybrisfs serve webdav and sftp. Raises `UsageError` for an illegal name."""
        return self.config / "serve" / f"{check_volume_name(name)}.json"

    def files_of_servers(self, name: str) -> tuple[Path, ...]:
        """What servers of the volume keep, outside its folders: they live and die with it."""
        return self.gateway_key(name), self.serve_users(name)

    def own_folders(self) -> list[tuple[Path, str]]:
        """The folders, without symbolic links, in which nothing else has any business, and what each is."""
        what = "a folder in which HybrisFS keeps its own files"
        return [(one.resolve(), what) for one in (self.state, self.config, self.cache, self.runtime)]

    def prepare(self) -> None:
        """Make the folders, readable by their owner only.

        Raises `HybrisError` when one cannot be made or belongs to somebody else.
        """
        for folder in (self.config, self.state, self.cache, self.data, self.runtime):
            _make_private(folder)

    def link_session(self) -> None:
        """Let `hybrisfs` in the session's runtime folder lead to ours, if there is a session of this user and
        it does not lead to another home's.

        Raises `OSError`.
        """
        if self.session is None or not self.session.is_dir() or self.session.stat().st_uid != os.getuid():
            return
        link = self.session / "hybrisfs"
        if link.is_symlink():
            if link.exists():
                return
            link.unlink()
        elif link.exists():
            link.rmdir()
        link.symlink_to(self.runtime)


def overlaps(one: Path, other: Path) -> bool:
    """Whether one of two folders is the other, or lies in it."""
    return one.is_relative_to(other) or other.is_relative_to(one)


def check_volume_name(name: str) -> str:
    """Return `name`; raise `UsageError` unless it is fit for a folder and for a command line."""
    if _VOLUME_NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name[:80]!r} cannot name a volume",
            "allowed are up to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
        )
    return name


def service_manager_socket() -> str | None:
    """The address at which systemd wants to hear how the service is doing, if it runs us."""
    return os.environ.get("NOTIFY_SOCKET") or None


def watchdog_seconds() -> float | None:
    """Within which time systemd wants to hear from us again and again, if at all (sd_watchdog_enabled(3))."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", str(os.getpid()))
    return int(microseconds) / 1e6 if microseconds.isdigit() and pid == str(os.getpid()) else None


def take_listening_sockets() -> int:
    """How many sockets systemd has handed us, from descriptor 3 on (sd_listen_fds(3)); not our children."""
    count, pid = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
    return int(count) if count.isdigit() and pid == str(os.getpid()) else 0


def logs_to_journal() -> bool:
    """Whether standard error goes to systemd's journal (systemd.exec(5), JOURNAL_STREAM)."""
    status = os.fstat(2)
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def has_screen() -> bool:
    """Whether this process belongs to a session with a screen."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def user_units(environment: Mapping[str, str] | None = None) -> Path:
    """Where systemd finds the units of this user."""
    values = os.environ if environment is None else environment
    user = Path(values["HOME"]) if values.get("HOME") else Path.home()
    return _xdg(values, "XDG_CONFIG_HOME", user / ".config") / "systemd" / "user"


def autostart_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where a desktop finds what it starts with each session of this user."""
    values = os.environ if environment is None else environment
    user = Path(values["HOME"]) if values.get("HOME") else Path.home()
    return _xdg(values, "XDG_CONFIG_HOME", user / ".config") / "autostart"


def _xdg(values: Mapping[str, str], variable: str, default: Path) -> Path:
    # The specification wants relative paths ignored.
    value = values.get(variable, "")
    return Path(value) if value.startswith("/") else default


def session_bus() -> str:
    """The address of the session's D-Bus: the user's bus of systemd when the environment names none."""
    if "DBUS_SESSION_BUS_ADDRESS" in os.environ:
        return os.environ["DBUS_SESSION_BUS_ADDRESS"]
    return f"unix:path={Path(os.environ.get('XDG_RUNTIME_DIR', '/nonexistent')) / 'bus'}"


def _make_private(folder: Path) -> None:
    try:
        make_directory(folder, SYSTEM)
        status = folder.stat()
        if status.st_uid != os.getuid():
            raise HybrisError(f"cannot use the folder {folder}", "it belongs to another user")
        if status.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise HybrisError(
            f"cannot use the folder {folder}", error.strerror or str(error), "Check its permissions."
        ) from error
