"""The daemon as a service of the user's systemd: its units, whether they are installed and run, and what it
and systemd tell each other."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from hybrisfs.environment import SYSTEM, sync_directory
from hybrisfs.errors import DaemonError, HybrisError
from hybrisfs.home import Home, service_manager_socket, take_listening_sockets, user_units
from hybrisfs.wire import Message

__all__ = [
    "JournalFormatter",
    "SERVICE",
    "SOCKET",
    "inherited_listener",
    "install",
    "notify",
    "remove",
    "require_manager",
    "serves",
    "start",
    "status",
    "unit_texts",
]

log = logging.getLogger(__name__)

_LINGER: Final = Path("/var/lib/systemd/linger")
_PATIENCE: Final = 200.0  # seconds; longer than starting or stopping the service may take


def serves(home: Home) -> bool:
    """Whether the service is installed for this very home and program, and enabled. Runs nothing."""
    if not enabled_link().is_symlink():
        return False
    try:
        return installed_text(SERVICE) == unit_texts(home)[SERVICE]
    except (HybrisError, OSError):
        return False


def install(home: Home) -> Message:
    """Write the units where no package has brought the same ones, and enable and start them; see `status`.

    No daemon of this home may run. Raises `HybrisError`.
    """
    require_manager()
    texts = unit_texts(home)
    try:
        for name, text in texts.items():
            if installed_text(name) != text:
                _write(user_units() / name, text)
    except OSError as error:
        raise HybrisError(f"cannot write into {user_units()}", error.strerror or str(error)) from error
    _systemctl("daemon-reload")
    _systemctl("reset-failed", SERVICE, SOCKET, check=False)
    _systemctl("enable", SERVICE, SOCKET)
    _systemctl("restart", SOCKET)
    _start()
    return status(home)


def remove() -> list[str]:
    """Stop and disable the service, and remove the units that `install` wrote; returns these."""
    require_manager()
    if installed_text(SERVICE) is None:
        raise HybrisError("the service is not installed")
    _systemctl("disable", "--now", SERVICE, SOCKET)
    written = [user_units() / name for name in (SERVICE, SOCKET) if (user_units() / name).exists()]
    for path in written:
        path.unlink()
    _systemctl("daemon-reload")
    return [str(path) for path in written]


def start(home: Home) -> bool:
    """Have systemd start the daemon; False when it is not systemd's business. Raises `DaemonError`."""
    if not serves(home) or not _manager_answers():
        return False
    _systemctl("reset-failed", SERVICE, SOCKET, check=False)
    _systemctl("start", SOCKET, check=False)
    _start()
    return True


def status(home: Home) -> Message:
    """The facts: "installed", "enabled", "packaged", "state" as systemctl says, "pid", "linger", "current"
    (made for this program and home) and "manager" (systemd answers)."""
    answers = _manager_answers()
    text = installed_text(SERVICE)
    state, pid = "unknown", None
    if answers and text is not None:
        shown = _systemctl("show", "--property=ActiveState,MainPID", SERVICE).splitlines()
        facts = dict(line.split("=", 1) for line in shown if "=" in line)
        state, pid = facts.get("ActiveState", "unknown"), int(facts.get("MainPID", "0")) or None
    return {
        "installed": text is not None,
        "enabled": enabled_link().is_symlink(),
        "state": state,
        "pid": pid,
        "current": text == unit_texts(home)[SERVICE],
        "packaged": packaged(SERVICE),
        "linger": (_LINGER / pwd.getpwuid(os.getuid()).pw_name).exists(),
        "manager": answers,
    }


def _start() -> None:
    try:
        _systemctl("start", SERVICE)
    except HybrisError as error:
        raise DaemonError(
            "systemd cannot start the daemon",
            error.why,
            f"journalctl --user -u {SERVICE} -n 50 says why.",
        ) from error


def require_manager() -> None:
    """Raises `HybrisError` when systemd does not answer for this user."""
    if not _manager_answers():
        raise HybrisError(
            "systemd does not answer for this user",
            "there is no systemd here, or this is not a login of its own, as after su",
            "Log in directly (ssh, machinectl shell), or go without: commands start the daemon themselves.",
        )


def _manager_answers() -> bool:
    if shutil.which("systemctl") is None:
        return False
    try:
        _systemctl("show", "--property=Version")
    except HybrisError:
        return False
    return True


def _systemctl(*words: str, check: bool = True) -> str:
    """What systemctl prints. Raises `HybrisError`, its complaint as the reason, when it fails and *check*."""
    try:
        done = subprocess.run(
            ["systemctl", "--user", "--no-pager", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HybrisError("systemctl failed", str(error)) from error
    if done.returncode and check:
        complaint = done.stderr.strip().replace("\n", " ") or f"status {done.returncode}"
        raise HybrisError(f"systemctl {words[0]} failed", complaint)
    return done.stdout


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)
    sync_directory(path.parent, SYSTEM)


# -- the units by which systemd runs the daemon of a user: their text and where they are ----------------
# A login waits for the target basic of the user's systemd, and the service is before it: so no program of the
# session finds a folder that is not mounted yet. When the daemon does not come up, the login waits no longer
# than JobRunningTimeoutSec; user@.service would be given up after 90 s.
# With the usual folders the text is the same for all users, so that a package can ship it. Nothing in it may
# imply NoNewPrivileges, as most of systemd's sandboxing does for a user's units: fusermount3 is setuid. What
# needs a mount namespace has no effect there or brings a user namespace, in which setuid means nothing.
# No UMask: other users, or machines with other user numbers, may read the objects of a file:// cloud; what is
# private is made so. No weights: programs in the mount wait for the daemon, and must not have more than it.
# When memory runs out, programs go before the daemon, as others wait for it. A million files take it 175 MiB,
# and the rest up to MemoryHigh is the kernel's copy of what it has read: the limit is for a daemon gone wild.


SERVICE: Final = "hybrisfs.service"
SOCKET: Final = "hybrisfs.socket"
_TARGET: Final = "default.target"
_PACKAGED: Final = (Path("/usr/lib/systemd/user"), Path("/etc/systemd/user"))
_PACKAGES: Final = Path(__file__).resolve().parents[1]
_USUAL_SOCKET: Final = "%h/.local/state/hybrisfs/runtime/daemon.sock"  # `Home.socket`
_MAX_SOCKET_PATH: Final = 107  # bytes; systemd has no way around the limit of unix(7)

_SERVICE_TEXT: Final = """\
# Written by hybrisfs service install.
[Unit]
Description=HybrisFS, a folder over several clouds
Documentation=man:hybrisfs(1) man:hybrisfs-service(1)
Requires={socket}
After={socket} dbus.socket
DefaultDependencies=no
Before=basic.target shutdown.target
Conflicts=shutdown.target
JobRunningTimeoutSec=25
StartLimitIntervalSec=0

[Service]
Type=notify
{environment}WorkingDirectory={packages}
ExecStart={python} -m hybrisfs.daemon
ExecStopPost={python} -m hybrisfs.daemon --clear
Restart=on-failure
RestartSec=200ms
TimeoutStartSec=120
TimeoutStopSec=60
WatchdogSec=180
KillMode=mixed
LimitCORE=0
MemoryHigh=50%
OOMScoreAdjust=100
ManagedOOMPreference=avoid
LogRateLimitIntervalSec=30
LogRateLimitBurst=500

[Install]
WantedBy={target}
"""

_SOCKET_TEXT: Final = """\
# Written by hybrisfs service install.
[Unit]
Description=Control socket of HybrisFS
Documentation=man:hybrisfs-service(1)

[Socket]
ListenStream={path}
SocketMode=0600
DirectoryMode=0700

[Install]
WantedBy=sockets.target
"""


def unit_texts(home: Home) -> dict[str, str]:
    """The text of each unit, by its name.

    Raises `HybrisError` when systemd cannot listen where the daemon would.
    """
    variables = home.variables()
    usual = not variables.keys() & {"HYBRISFS_HOME", "XDG_STATE_HOME"}
    path = _USUAL_SOCKET if usual else _escaped(str(home.socket))
    if len(str(home.socket).encode()) > _MAX_SOCKET_PATH:
        raise HybrisError(
            f"no service can be made for {home.root or home.state}",
            "its path is too long for systemd to listen there",
            "Choose a shorter HYBRISFS_HOME, or go without: commands start the daemon themselves.",
        )
    environment = "".join(f"Environment={_word(f'{name}={value}')}\n" for name, value in variables.items())
    service = _SERVICE_TEXT.format(
        socket=SOCKET,
        environment=environment,
        packages=_escaped(str(_PACKAGES)),
        python=_word(sys.executable.replace("$", "$$")),
        target=_TARGET,
    )
    return {SERVICE: service, SOCKET: _SOCKET_TEXT.format(path=path)}


def installed_text(name: str) -> str | None:
    """The text of the unit that systemd would use for this user; None when there is none."""
    for folder in (user_units(), *_PACKAGED):
        try:
            return (folder / name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def packaged(name: str) -> bool:
    """Whether a package has brought the unit."""
    return any((folder / name).exists() for folder in _PACKAGED)


def enabled_link() -> Path:
    """What is there when the service starts with the user's session."""
    return user_units() / f"{_TARGET}.wants" / SERVICE


def _escaped(path: str) -> str:
    return path.replace("%", "%%")


def _word(text: str) -> str:
    """One word of a line of a unit, whatever is in it (systemd.syntax(7))."""
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


# -- what the two tell each other: sd_notify(3), sd_listen_fds(3), sd-daemon(3); no library --------------


_FIRST_SOCKET: Final = 3
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG: Final = 7


def notify(state: str) -> None:
    """Send assignments such as "READY=1" to the service manager; does nothing where there is none."""
    address = service_manager_socket()
    if address is None:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract namespace
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.sendto(state.encode(), address)
    except OSError as error:
        log.warning("cannot tell systemd %s: %s", state, error)


def inherited_listener(path: Path) -> socket.socket | None:
    """The socket on which systemd has listened at *path* for us; None when it has not.

    Others that it handed us are closed.
    """
    found: socket.socket | None = None
    for descriptor in range(_FIRST_SOCKET, _FIRST_SOCKET + take_listening_sockets()):
        os.set_inheritable(descriptor, False)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            given = socket.socket(fileno=os.dup(descriptor))
            if given.family == socket.AF_UNIX and given.getsockname() == os.fspath(path) and found is None:
                found = given
            else:
                log.warning("systemd handed us the socket %r, which is not %s", given.getsockname(), path)
                given.close()
    return found


class JournalFormatter(logging.Formatter):
    """Every line begins with its priority, as <3> for an error; the journal itself knows time and process."""

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), _DEBUG)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())
