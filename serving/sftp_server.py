"""The process that serves a folder by SFTP: from `hybrisfs serve sftp` until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import NamedTuple

from hybrisfs.door import Door
from hybrisfs.listening import Address
from hybrisfs.qr import qr_lines
from serving.folder import Folder
from serving.host_key import HostKey, host_key
from serving.sftp import serve_clients
from serving.start import begun
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
    with begun("sftp", wanted.volume, wanted.folder, wanted.address) as beginning:
        root, users, scratch, door = beginning
        key = host_key(users.folder)
        endpoint = SftpEndpoint(beginning.urls("sftp"), beginning.is_local, key.fingerprint, key.is_new)
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
