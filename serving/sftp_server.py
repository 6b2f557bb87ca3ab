"""The process that serves a folder by SFTP: from `hybrisfs serve sftp` until Ctrl-C."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from collections.abc import Callable
from typing import NamedTuple

from hybrisfs.client import scratch_folder
from hybrisfs.listening import Address, listening, only_one
from hybrisfs.qr import qr_lines
from serving.door import Door
from serving.folder import Folder
from serving.host_key import HostKey, host_key
from serving.sftp import serve_clients
from serving.start import check_machine, check_users, places, served_folder, users_of
from serving.unfinished import Unfinished
from serving.users import Guard

__all__ = ["SftpEndpoint", "SftpWanted", "serve_sftp"]


class SftpWanted(NamedTuple):
    """What is to be served, and how."""

    volume: str
    folder: str
    address: Address
    read_only: bool


class SftpEndpoint(NamedTuple):
    """Where it listens, whether only programs of this machine reach that, and what clients know it by."""

    urls: list[str]
    is_local: bool
    fingerprint: str
    key_is_new: bool

    def code(self) -> list[str]:
        """The first address as QR code, with the key's fingerprint behind it: lines of text."""
        return qr_lines(f"{self.urls[0]}/#{self.fingerprint}")


def serve_sftp(wanted: SftpWanted, show: Callable[[SftpEndpoint], None]) -> None:
    """Serve a folder of a mounted volume; *show* is called when clients can connect.

    Ends with KeyboardInterrupt at Ctrl-C. Raises UsageError, HybrisError when it is not mounted, has no
    users, is served already, or the address cannot be used; OSError.
    """
    check_machine()
    root = served_folder(wanted.volume, wanted.folder)
    users = users_of(wanted.volume)
    check_users(users, wanted.volume)
    scratch = scratch_folder() / f"sftp-{wanted.volume}"
    scratch.mkdir(mode=0o700, exist_ok=True)
    with (
        only_one(scratch / "lock", wanted.volume),
        listening(wanted.address) as listener,
        Door(listener) as door,
    ):
        key = host_key(users.folder)
        is_local = ipaddress.ip_address(door.getsockname()[0]).is_loopback
        urls = [f"sftp://{place}" for place in places(door)]
        endpoint = SftpEndpoint(urls, is_local, key.fingerprint, key.is_new)
        folder = Folder(root, Unfinished(scratch))
        asyncio.run(_serve(door, key, Guard(users), folder, lambda: show(endpoint), wanted.read_only))
    raise KeyboardInterrupt


async def _serve(
    door: Door, key: HostKey, guard: Guard, folder: Folder, show: Callable[[], None], read_only: bool
) -> None:
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    await serve_clients(door, key.key, guard, folder, over, show, read_only=read_only)
