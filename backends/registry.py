"""From the URL of a cloud to its driver.

Drivers are loaded when a cloud of their kind is opened: their libraries take long to load, and most volumes
need one or two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from backends.address import without_secrets
from backends.credentials import NO_CREDENTIALS, Credentials
from backends.errors import PermanentError
from backends.store import Store

__all__ = ["SCHEMES", "open_store"]


def _file(url: str, credentials: Credentials) -> Store:
    from backends.file import FileStore

    return FileStore(url)


def _s3(url: str, credentials: Credentials) -> Store:
    from backends.s3 import S3Store

    return S3Store(url, credentials)


def _gcs(url: str, credentials: Credentials) -> Store:
    from backends.gcs import GcsStore

    return GcsStore(url, credentials)


def _azure(url: str, credentials: Credentials) -> Store:
    from backends.azure import AzureStore

    return AzureStore(url, credentials)


def _webdav(url: str, credentials: Credentials) -> Store:
    from backends.webdav import WebDavStore

    return WebDavStore(url, credentials)


def _sftp(url: str, credentials: Credentials) -> Store:
    from backends.sftp import SftpStore

    return SftpStore(url, credentials)


SCHEMES: Final[dict[str, Callable[[str, Credentials], Store]]] = {
    "az": _azure,
    "file": _file,
    "gs": _gcs,
    "s3": _s3,
    "sftp": _sftp,
    "webdav": _webdav,
    "webdavs": _webdav,
}


def open_store(url: str, credentials: Credentials = NO_CREDENTIALS) -> Store:
    """Return the driver for `url`, which asks `credentials` for its secrets. Does not touch the cloud.

    Raises `PermanentError` when the URL names no supported kind of cloud, is malformed or holds a password.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme in SCHEMES:
        return SCHEMES[scheme](url, credentials)
    known = ", ".join(f"{name}://" for name in SCHEMES)
    if url.startswith("/"):
        raise PermanentError(url, "open", "", "a path is not a URL", f"write file://{url}")
    shown = f"unknown kind of cloud {scheme!r}" if separator else "not the URL of a cloud"
    raise PermanentError(without_secrets(url), "open", "", shown, f"supported: {known}")
