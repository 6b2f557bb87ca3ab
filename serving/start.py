"""What a server of a folder looks at before it starts: this machine, the folder, its users, its address."""

from __future__ import annotations

import ipaddress
import socket

from hybrisfs.client import HybrisError, UsageError, serve_users_file
from serving.beneath import check_kernel
from serving.certificate import names_of_machine
from serving.mounted import MountedFolder
from serving.users import Users

__all__ = ["check_machine", "check_users", "places", "served_folder", "users_of"]


def users_of(volume: str) -> Users:
    """The users of a volume, one that there is."""
    return Users(serve_users_file(volume))


def check_machine() -> None:
    """Raises HybrisError when clients cannot be kept within a folder here."""
    try:
        check_kernel()
    except OSError as error:
        raise HybrisError(
            "this kernel cannot keep clients within a folder",
            f"openat2: {error.strerror}",
            "Linux 5.6 or newer can; a sandbox may forbid it.",
        ) from error


def served_folder(volume: str, folder: str) -> MountedFolder:
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


def check_users(users: Users, volume: str) -> None:
    """Raises HybrisError when there are none."""
    if not users.all():
        raise HybrisError(
            f"nobody may use {volume} yet",
            "it is served to users with a password only",
            f"hybrisfs serve user add {volume} NAME adds one.",
        )


def places(listener: socket.socket) -> list[str]:
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
