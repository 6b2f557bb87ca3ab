"""How each server of a folder starts: it looks at this machine, the folder and its users, and listens."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hybrisfs.client import HybrisError, UsageError, scratch_folder, serve_users_file
from hybrisfs.door import Door
from hybrisfs.listening import Address, listening, only_one
from serving.beneath import check_kernel
from serving.certificate import names_of_machine
from serving.mounted import MountedFolder
from serving.users import Users

__all__ = ["Begun", "begun", "users_of"]


def users_of(volume: str) -> Users:
    """The users of a volume, one that there is."""
    return Users(serve_users_file(volume))


class Begun(NamedTuple):
    """What a server begins with."""

    root: MountedFolder
    users: Users
    scratch: Path
    """A folder of this machine, which only this server uses."""
    door: Door

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach it."""
        return ipaddress.ip_address(self.door.getsockname()[0]).is_loopback

    def urls(self, scheme: str) -> list[str]:
        """By which clients reach it; the first one is good for most."""
        return [f"{scheme}://{place}" for place in _places(self.door)]


@contextmanager
def begun(protocol: str, volume: str, folder: str, address: Address) -> Iterator[Begun]:
    """Look at everything, and listen, for as long as the context lasts.

    Raises UsageError, HybrisError when the volume is not mounted, has no users, is served already by that
    protocol, or the address cannot be used; OSError.
    """
    _check_machine()
    root, users = _served_folder(volume, folder), users_of(volume)
    _check_users(users, volume)
    scratch = scratch_folder() / f"{protocol}-{volume}"
    scratch.mkdir(mode=0o700, exist_ok=True)
    with only_one(scratch / "lock", volume), listening(address) as listener, Door(listener) as door:
        yield Begun(root, users, scratch, door)


def _check_machine() -> None:
    """Raises HybrisError when clients cannot be kept within a folder here."""
    try:
        check_kernel()
    except OSError as error:
        raise HybrisError(
            "this kernel cannot keep clients within a folder",
            f"openat2: {error.strerror}",
            "Linux 5.6 or newer can; a sandbox may forbid it.",
        ) from error


def _served_folder(volume: str, folder: str) -> MountedFolder:
    """A folder of a mounted volume. Raises UsageError when it is not there, HybrisError."""
    root = MountedFolder(volume, folder)
    try:
        with root.open():
            pass
    except OSError as error:
        raise UsageError(
            f"cannot serve {folder or volume}",
            error.strerror or str(error),
            f"--folder is the path of a folder in {volume}, without symbolic links.",
        ) from error
    return root


def _check_users(users: Users, volume: str) -> None:
    """Raises HybrisError when there are none."""
    if not users.all():
        raise HybrisError(
            f"nobody may use {volume} yet",
            "it is served to users with a password only",
            f"hybrisfs serve user add {volume} NAME adds one.",
        )


def _places(listener: socket.socket) -> list[str]:
    """HOST:PORT by which clients reach a socket that listens; the first one is good for most."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    hosts = [host]
    if address.is_unspecified:
        others = sorted(names_of_machine() - {"localhost", "127.0.0.1", "::1"}, key=_usefulness)
        hosts = [name for name in others if _version(name) in (None, address.version)] or ["localhost"]
    return [f"{f'[{name}]' if ':' in name else name}:{port}" for name in hosts]


def _usefulness(name: str) -> tuple[int, str]:
    """Addresses first, then names that other systems find, then the rest."""
    if _version(name) is not None:
        return 0, name
    return (1 if name.endswith(".local") else 2), name


def _version(name: str) -> int | None:
    """Of the protocol, if it is an address."""
    try:
        return ipaddress.ip_address(name).version
    except ValueError:
        return None
