"""The URLs of services for metadata, and the secrets that go with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from hybrisfs.errors import UsageError

__all__ = ["NO_ACCESS", "Access", "ServiceUrl", "is_service", "servers_of"]


class _Scheme(NamedTuple):
    service: str
    port: int
    tls: bool


_SCHEMES: Final = {
    "etcd": _Scheme("etcd", 2379, False),
    "etcds": _Scheme("etcd", 2379, True),
    "zookeeper": _Scheme("ZooKeeper", 2181, False),
    "zookeepers": _Scheme("ZooKeeper", 2281, True),
}
_SEALED: Final = "names=sealed"


@dataclass(frozen=True, slots=True)
class Access:
    """What opens a service."""

    password: str | None = field(default=None, repr=False)
    """Of the user that the URL names."""
    authority: Path | None = None
    """The file with the certificates that servers are checked against; None: those of the system."""
    certificate: Path | None = None
    """The file with this client's certificate and key."""


NO_ACCESS: Final = Access()


class ServiceUrl(Struct, frozen=True):
    """Where a service is."""

    service: str
    """Its name for people."""
    hosts: tuple[str, ...]
    """`HOST:PORT`, of IPv6 `[HOST]:PORT`."""
    tls: bool = False
    prefix: str = ""
    """What all keys begin with; no slash at either end."""
    user: str | None = None
    sealed: bool = False
    """Whether it sees no names: see `hybrisfs.kv.sealed_names`."""

    @staticmethod
    def parse(url: str) -> ServiceUrl:
        """`etcd://[USER@]HOST[:PORT][,HOST[:PORT] ...][/PREFIX][?names=sealed]`; likewise `zookeeper`; with
        an *s* they are asked over TLS. Raises UsageError."""
        servers, question, options = url.partition("?")
        name, _, rest = servers.partition("://")
        scheme = _SCHEMES.get(name)
        authority, _, prefix = rest.partition("/")
        user, _, listed = authority.rpartition("@")
        prefix = prefix.strip("/")
        hosts = [_host(host, 0 if scheme is None else scheme.port) for host in listed.split(",") if host]
        wrong = ""
        if scheme is None:
            wrong = f"{name!r} is none of {', '.join(_SCHEMES)}"
        elif not hosts:
            wrong = "it names no host"
        elif ":" in user:
            wrong = "a password in a URL is seen by others: leave it out, hybrisfs cloud login asks for it"
        elif (question and options != _SEALED) or "#" in url:
            wrong = f"it takes no other option than ?{_SEALED}"
        elif scheme.service == "ZooKeeper" and prefix and {"", ".", ".."} & {*prefix.split("/")}:
            wrong = "its path has an empty part, or one of dots"
        if scheme is None or wrong or None in hosts:
            examples = "etcd://db1:2379,db2:2379,db3:2379/files or zookeeper://zk1,zk2,zk3"
            raise UsageError(
                f"{url!r} is not the URL of an etcd or a ZooKeeper", wrong, f"For example: {examples}"
            )
        return ServiceUrl(
            scheme.service,
            tuple(host for host in hosts if host is not None),
            scheme.tls,
            prefix,
            unquote(user) or None,
            bool(question),
        )


def servers_of(url: str) -> str:
    """The URL without its option: what secrets belong to."""
    return url.partition("?")[0]


def is_service(url: str) -> bool:
    """Whether this is the URL of a service, rather than of a cloud."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in _SCHEMES


def _host(text: str, default: int) -> str | None:
    """*text* with a port; None when it names no host."""
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port or default
    except ValueError:
        return None
    if not name or parts.path:
        return None
    return f"{f'[{name}]' if ':' in name else name}:{port}"
