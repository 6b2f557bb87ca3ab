"""A machine of its own for a test: a bare Debian with a running systemd, in namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.system.deadline import until

__all__ = ["ROOT", "Machine"]

ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hybrisfs-debian-root"
"""What packaging/debian-root.sh has made."""

_BOOT = Path(__file__).with_name("boot_machine.sh")
_UID = 1000


class Machine:
    """Boots a copy of `ROOT` in *folder*; a context manager that leaves nothing running."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        subprocess.run(["cp", "-a", "--reflink=auto", ROOT, self.root], check=True)
        (self.root / "dev" / "fuse").unlink(missing_ok=True)
        self._unshare = subprocess.Popen(
            ["unshare", "-p", "-m", "-u", "-i", "-C", "-f", str(_BOOT), str(self.root)],
            start_new_session=True,
        )
        self._init = 0

    def __enter__(self) -> Machine:
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        try:
            self._init = int(until(lambda: children.read_text().split(), "the machine to boot")[0])
            until(lambda: Path(f"/proc/{self._init}/comm").read_text() == "systemd\n", "systemd")
            until(self._is_up, "the systemd of alice", 120)
        except BaseException:
            self.close()
            raise
        self.as_root("chmod 666 /dev/fuse")  # as udev does elsewhere
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut the power."""
        if self._init:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init, signal.SIGKILL)
        else:
            self._unshare.kill()
        self._unshare.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def as_root(self, script: str) -> str:
        """Run a shell script that must succeed; returns what it printed."""
        return self._checked(["sh", "-ec", script])

    def as_alice(self, script: str) -> str:
        """The same as an ordinary user, in her home directory."""
        return self._checked(self._become(script))

    def alice_can(self, script: str) -> bool:
        return self._run(self._become(script)).returncode == 0

    def _become(self, script: str) -> list[str]:
        variables = ["HOME=/home/alice", "PATH=/usr/bin:/bin", f"XDG_RUNTIME_DIR=/run/user/{_UID}"]
        shell = ["sh", "-ec", f"cd; {script}"]
        return ["runuser", "-u", "alice", "--", "env", "-i", "LC_ALL=C.UTF-8", *variables, *shell]

    def _is_up(self) -> bool:
        return self.alice_can("systemctl --user is-system-running | grep -Eq 'running|degraded'")

    def _checked(self, words: list[str]) -> str:
        done = self._run(words)
        assert done.returncode == 0, f"{words[-1]}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(self._init), "-p", "-m", "-u", "-i", "-C"]
        return subprocess.run(
            [*enter, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
