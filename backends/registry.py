"""From the URL of a cloud to its driver.

Drivers are loaded when a cloud of their kind is opened: their libraries take long to load, and most volumes
need one or two.

Some options of URLs name what is on this machine: files, accounts. They count only if somebody has typed the
URL here: who chooses, say, the file by which a server is known, chooses the server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import unquote_plus, urlsplit

from backends.address import without_secrets
from backends.credentials import NO_CREDENTIALS, Credentials, Secrets
from backends.errors import PermanentError
from backends.store import Store

__all__ = ["SCHEMES", "local_options", "open_heard", "open_store"]


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


_LOCAL: Final = {"s3": frozenset({"profile"}), "sftp": frozenset({"key", "known_hosts"})}


class _AsNamed:
    """The secrets of a cloud, under the URL by which people know it."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self._url = url
        self._credentials = credentials

    def lookup(self, url: str) -> Secrets:
        return self._credentials.lookup(self._url)


def local_options(url: str) -> list[str]:
    """The options of a URL that name what is on this machine."""
    try:
        query = urlsplit(url).query
    except ValueError:  # the driver says so
        return []
    return [name for one in query.split("&") if (name := _name(one)) in _local(url)]


def _without_local(url: str) -> str:
    parts = urlsplit(url)
    kept = [one for one in parts.query.split("&") if _name(one) not in _local(url)]
    return parts._replace(query="&".join(kept)).geturl()


def _name(option: str) -> str:
    return unquote_plus(option.partition("=")[0])


def _local(url: str) -> frozenset[str]:
    return _LOCAL.get(url.partition("://")[0], frozenset())


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


def open_heard(url: str, credentials: Credentials = NO_CREDENTIALS) -> Store:
    """Like `open_store`, for a URL that nobody has typed on this machine: without its `local_options`."""
    if local_options(url):
        return open_store(_without_local(url), _AsNamed(url, credentials))
    return open_store(url, credentials)
