"""Opens the dashboard in the browser when a person has clicked on a notification.

The daemon may be older than the session that shows the notification: then it knows nothing of its screen. And
what a service has started ends with it, a browser, too. So the user's systemd starts the page, in the
environment that the session has given it; where there is no systemd, or a terminal of the session has started
the daemon, the page is a process of the daemon's own.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.home import Home, has_screen, service_manager_socket

__all__ = ["PageOpener"]

log = logging.getLogger(__name__)

_PATIENCE: Final = 10.0  # seconds
_PACKAGES: Final = Path(__file__).resolve().parents[2]
# The page's process ends before the browser that it may have started.
_SYSTEMD_RUN: Final = (
    *("systemd-run", "--user", "--quiet", "--collect", "--slice=app.slice"),
    *("--property=KillMode=process", "--property=StandardOutput=null", f"--working-directory={_PACKAGES}"),
)


class PageOpener:
    """For one thread."""

    def __init__(self, home: Home, environment: Environment = SYSTEM) -> None:
        self._home = home
        self._start = environment.start
        self._children: list[subprocess.Popen[bytes]] = []

    def open(self, volume: str, section: str, token: str | None) -> None:
        """Show a section of the dashboard (`hybrisfs ui`). *token* lets the browser come to the front
        (XDG activation). A failure is logged."""
        page = (sys.executable, "-m", "cli.main", "ui", "--volume", volume, "--section", section)
        activation = {} if token is None else {"XDG_ACTIVATION_TOKEN": token, "DESKTOP_STARTUP_ID": token}
        ours = service_manager_socket() is None and has_screen()
        if ours or not _by_systemd(page, {**self._home.variables(), **activation}):
            try:
                self._as_a_child(page, {**self._home.environment(), **activation})
            except OSError as error:
                log.warning("the dashboard cannot be opened: %s", error)

    def reap(self) -> None:
        """Take note of pages that have ended; nothing is left of them then."""
        self._children = [child for child in self._children if child.poll() is None]

    def _as_a_child(self, page: tuple[str, ...], environment: dict[str, str]) -> None:
        child = self._start(
            page,
            cwd=_PACKAGES,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._children.append(child)


def _by_systemd(page: tuple[str, ...], environment: dict[str, str]) -> bool:
    """Whether systemd has started it."""
    variables = [f"--setenv={name}={value}" for name, value in environment.items()]
    try:
        done = subprocess.run(
            [*_SYSTEMD_RUN, *variables, "--", *page],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("systemd cannot open the dashboard: %s", error)
        return False
    if done.returncode:
        log.debug("systemd cannot open the dashboard: %s", done.stderr.decode(errors="replace").strip())
    return done.returncode == 0
