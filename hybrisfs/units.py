"""The units by which systemd runs the daemon of a user: their text and where they are.

With the usual folders the text is the same for all users, so that a package can ship it. Nothing in it may
imply NoNewPrivileges, as most of systemd's sandboxing does for a user's units: fusermount3 is setuid.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from hybrisfs.errors import HybrisError
from hybrisfs.home import Home, user_units

__all__ = ["SERVICE", "SOCKET", "enabled_link", "installed_text", "packaged", "unit_texts"]

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
Requires={socket}
After={socket}
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
LogRateLimitIntervalSec=30
LogRateLimitBurst=500

[Install]
WantedBy={target}
"""

_SOCKET_TEXT: Final = """\
# Written by hybrisfs service install.
[Unit]
Description=Control socket of HybrisFS

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
