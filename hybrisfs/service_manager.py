"""The daemon as a service of the user's systemd: installed, removed, started, looked at."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from hybrisfs.errors import DaemonError, HybrisError
from hybrisfs.files import sync_directory
from hybrisfs.home import Home, user_units
from hybrisfs.units import SERVICE, SOCKET, enabled_link, installed_text, packaged, unit_texts
from hybrisfs.wire import Message

__all__ = ["install", "remove", "serves", "start", "status"]

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
    _require_manager()
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
    _require_manager()
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


def _require_manager() -> None:
    if not _manager_answers():
        raise HybrisError(
            "systemd does not answer for this user",
            "there is no systemd here, or this is no login of its own, as after su",
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
    sync_directory(path.parent)
