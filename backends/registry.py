"""The kinds of clouds there are, and from the URL of a cloud to its driver.

A driver is loaded when a URL of its kind is first seen, and loads its library when it is first used: most
volumes need one or two, and loading takes long.

Some options of URLs name what is on this machine: files, accounts. They count only if a person has typed the
URL here: who chooses, say, the file by which a server is known, chooses the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote_plus, urlsplit

from backends.address import scheme_of, start_of, without_secrets
from backends.credentials import NO_CREDENTIALS, Credentials, Secrets
from backends.driver import CloudKind, Driver, Secret
from backends.errors import PermanentError
from backends.store import Store

__all__ = [
    "SCHEMES",
    "Secret",
    "driver_of",
    "drivers",
    "kind_of",
    "local_options",
    "open_heard",
    "open_store",
    "secrets_of",
    "server_of",
]

AnyDriver: TypeAlias = type[Driver[Any]]

_DRIVERS: Final = {
    "file": "file.FileStore",
    "s3": "s3.S3Store",
    "gs": "gcs.GcsStore",
    "az": "azure.AzureStore",
    "webdavs": "webdav.WebDavStore",
    "webdav": "webdav.WebDavStore",
    "sftp": "sftp.SftpStore",
    "rclone": "rclone.RcloneStore",
    "relay": "relay.RelayStore",
}
"""Module and class of each driver in `backends`, by the schemes that its record names; in the order in which
people see them."""

SCHEMES: Final = tuple(_DRIVERS)
"""Of the URLs of clouds."""


def drivers() -> list[AnyDriver]:
    """All drivers, in the order in which people see them."""
    return [_load(driver) for driver in dict.fromkeys(_DRIVERS.values())]


def driver_of(scheme: str) -> AnyDriver | None:
    """The driver for URLs of a scheme; None when that is unknown."""
    driver = _DRIVERS.get(scheme)
    return None if driver is None else _load(driver)


def _load(driver: str) -> AnyDriver:
    module, name = driver.split(".")
    return cast("AnyDriver", getattr(import_module(f"backends.{module}"), name))


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
    kind = kind_of(url)
    return kind.local_options if kind is not None else frozenset()


def kind_of(url: str) -> CloudKind | None:
    """The kind of the cloud at `url`, or None when that is unknown."""
    driver = driver_of(scheme_of(url))
    return None if driver is None else driver.kind


def server_of(url: str) -> str | None:
    """The URL of the web server behind a cloud; None for those behind none, and for malformed URLs."""
    kind = kind_of(url)
    try:
        address = kind.parse(url) if kind is not None else None
    except PermanentError:
        return None
    return None if kind is None or address is None else address.option("endpoint") or kind.server(address)


def open_store(url: str, credentials: Credentials = NO_CREDENTIALS) -> Store:
    """Return the driver for `url`, which asks `credentials` for its secrets. Does not touch the cloud.

    Raises `PermanentError` when the URL names no supported kind of cloud, is malformed or holds a password.
    """
    scheme = scheme_of(url)
    driver = driver_of(scheme)
    if driver is not None:
        return driver(url, credentials)
    known = ", ".join(start_of(name) for name in sorted(SCHEMES))
    if url.startswith("/"):
        raise PermanentError(url, "open", "", "a path is not a URL", f"write file://{url}")
    shown = f"unknown kind of cloud {scheme!r}" if scheme else "not the URL of a cloud"
    raise PermanentError(without_secrets(url), "open", "", shown, f"supported: {known}")


def open_heard(url: str, credentials: Credentials = NO_CREDENTIALS) -> Store:
    """Like `open_store`, for a URL that nobody has typed on this machine: without its `local_options`."""
    if local_options(url):
        return open_store(_without_local(url), _AsNamed(url, credentials))
    return open_store(url, credentials)


# -- the secrets that people are asked for, as the records of the drivers name them ---------------------


def secrets_of(url: str) -> tuple[Secret, ...]:
    """The secrets that the cloud at *url* takes, without those that the URL states; none for a kind that
    takes none, or is unknown. Raises ValueError when it is not a URL."""
    parts = urlsplit(url)
    driver = driver_of(parts.scheme)
    taken = () if driver is None else driver.kind.secrets
    return tuple(secret for secret in taken if secret.name != "user" or not parts.username)
