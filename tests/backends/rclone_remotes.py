"""Remotes of rclone for tests: a configuration of their own, in which `RCLONE_CONFIG` names."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from tests.backends.servers import Server, missing

__all__ = ["Remotes", "through_rclone"]


@dataclass(frozen=True)
class Remotes:
    """A configuration of rclone."""

    file: Path

    def add(self, name: str, **options: str) -> str:
        """Add a remote unless it is there; `type` is its kind. Returns its name."""
        known = self.file.read_text() if self.file.exists() else ""
        if f"[{name}]\n" not in known:
            lines = [f"[{name}]", *(f"{key} = {value}" for key, value in options.items()), "", ""]
            self.file.write_text(known + "\n".join(lines))
        return name


def needs_rclone() -> str:
    """The path of rclone; the test is skipped when it is missing, where that may be."""
    path = shutil.which("rclone")
    if path is None:
        missing("rclone")
    return str(path)


def obscured(password: str) -> str:
    """A password as rclone's configuration has it."""
    done = subprocess.run(
        [needs_rclone(), "obscure", "-"], input=password, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def through_rclone(server: Server, remotes: Remotes) -> Server:
    """A WebDAV or SFTP server behind remotes of rclone; each address gets one of its own."""

    def make_url(authority: str, name: str) -> str:
        parts = urlsplit(server.make_url(authority, name))
        if parts.scheme == "webdav":
            password = obscured(server.secrets["password"])
            url, user = f"http://{authority}/", str(parts.username)
            remote = remotes.add(
                f"dav-{parts.port}", type="webdav", url=url, vendor="other", user=user, **{"pass": password}
            )
            return f"rclone:{remote}:{name}"
        own = remotes.file.with_name(f"key-{server.port}")
        if not own.exists():
            own.touch(mode=0o600)
            own.write_text(server.secrets["private_key"])
        remote = remotes.add(
            f"ssh-{parts.port}",
            type="sftp",
            host="127.0.0.1",
            port=str(parts.port),
            user=str(parts.username),
            key_file=str(own),
            known_hosts_file=parts.query.partition("=")[2],
            shell_type="unix",
        )
        return f"rclone:{remote}:{parts.path}"

    return replace(server, make_url=make_url, secrets={}, wrong={})
