"""The process that serves a folder by WebDAV: from `hybrisfs serve webdav` until Ctrl-C."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hybrisfs import http_server
from hybrisfs.client import UsageError
from hybrisfs.listening import Address
from hybrisfs.qr import qr_lines
from serving.app import WebDav
from serving.beneath import opened
from serving.certificate import Certificate, certificate, names_of_machine
from serving.folder import Folder
from serving.mounted import MountedFolder
from serving.resources import Provider
from serving.start import begun
from serving.unfinished import Unfinished
from serving.users import Guard

__all__ = ["Endpoint", "Wanted", "serve"]

_IDLE: Final = 60  # seconds that a connection is kept
_CONNECTIONS: Final = 256
_LARGEST_LITTER: Final = 16 << 20  # bytes


class Wanted(NamedTuple):
    """What is to be served, and how."""

    volume: str
    folder: str
    address: Address
    read_only: bool
    plain: bool


class Endpoint(NamedTuple):
    """Where it listens, whether only programs of this machine reach that, and what clients know it by."""

    urls: list[str]
    is_local: bool
    certificate: Certificate | None

    def code(self) -> list[str]:
        """The first address as QR code, with the certificate's fingerprint behind it: lines of text."""
        if self.certificate is None:
            return []
        fingerprint = self.certificate.fingerprint.replace(":", "").lower()
        return qr_lines(f"{self.urls[0]}/#sha256={fingerprint}")


def serve(wanted: Wanted, show: Callable[[Endpoint], None]) -> None:
    """Serve a folder of a mounted volume; *show* is called when clients can connect.

    Ends with KeyboardInterrupt at Ctrl-C. Raises UsageError, HybrisError when it is not mounted, has no
    users, is served already, or the address cannot be used; OSError.
    """
    with begun("webdav", wanted.volume, wanted.folder, wanted.address) as beginning:
        root, users, scratch, door = beginning
        if wanted.plain and not beginning.is_local:
            raise UsageError(
                "--plain is for this machine only", "others on the network could read passwords and files"
            )
        made = None if wanted.plain else _certificate(users.folder)
        unfinished = Unfinished(scratch)
        folder = Folder(root, unfinished)
        folder.remove_left(MountedFolder(wanted.volume, ""))
        litter = Folder(_Scratch(scratch / "litter"), unfinished, _LARGEST_LITTER)
        application = WebDav(Provider(folder, litter, read_only=wanted.read_only), Guard(users), door.entered)
        urls = beginning.urls("http" if made is None else "https")
        endpoint = Endpoint(urls, beginning.is_local, made)
        try:
            http_server.serve(
                application,
                door,
                _CONNECTIONS,
                lambda: show(endpoint),
                idle=_IDLE,
                tls=None if made is None else (made.chain, made.key),
            )
        finally:
            application.close()


class _Scratch:
    """A folder of this machine, empty at first."""

    names: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        self._path = path

    @contextmanager
    def open(self) -> Iterator[int]:
        """The folder, open for names below it. Raises OSError."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        with opened(os.open(self._path, flags)) as found:
            yield found


def _certificate(folder: Path) -> Certificate:
    folder.mkdir(mode=0o700, exist_ok=True)
    return certificate(folder, names_of_machine(), datetime.datetime.now(datetime.UTC))
