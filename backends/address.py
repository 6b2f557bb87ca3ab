"""The URL of a cloud, taken apart: ``scheme://[user@]host[:port]/path?option=value``.

A URL is stored, logged and shown, so it holds no secret: one with a password in it is refused. Options
are what a driver knows by name, each at most once.

The URL of a remote of rclone is what rclone itself takes: ``rclone:REMOTE:folder``, nothing in it encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from msgspec import Struct

from backends.errors import PermanentError

__all__ = [
    "Address",
    "is_remote",
    "parse_address",
    "scheme_of",
    "short_name",
    "start_of",
    "without_secrets",
]

_MAX_URL: Final = 2048  # characters
_REMOTE: Final = re.compile(r"[A-Za-z0-9_.+@](?:[A-Za-z0-9_.+@ -]{0,126}[A-Za-z0-9_.+@-])?")
_REMOTES: Final = frozenset({"rclone"})  # schemes without slashes: of places that another program knows


class Address(Struct, frozen=True):
    """A parsed URL. `path` has no slash at its ends; `path` and `user` are decoded, "" when absent."""

    url: str
    scheme: str
    user: str
    host: str
    port: int | None
    path: str
    options: Mapping[str, str]

    def option(self, name: str) -> str | None:
        """The value of an option, or None when the URL has it not."""
        return self.options.get(name)

    @property
    def prefix(self) -> str:
        """What the keys of all objects in a bucket begin with: the path and a slash, or nothing."""
        return f"{self.path}/" if self.path else ""

    @property
    def authority(self) -> str:
        """Host and port as they are written in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def quoted_path(self) -> str:
        """The path as it is written in a URL, without slashes at its ends."""
        return quote(self.path)


def parse_address(url: str, *, options: frozenset[str], form: str) -> Address:
    """Take `url` apart; `form` shows how such a URL is written.

    Raises `PermanentError` when it is malformed, has an option that is not in `options`, or a password.
    """
    if scheme_of(url) in _REMOTES:
        return _parse_remote(url, form)
    shown = without_secrets(url)
    try:
        parts = urlsplit(url)
        port = parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise PermanentError(shown, "open", "", f"malformed: {error}", f"write {form}") from None
    if parts.password is not None:
        raise PermanentError(
            shown,
            "open",
            "",
            "there is a password in the URL, which is stored and shown in many places",
            "leave it out: hybrisfs cloud login asks for it",
        )
    path = unquote(parts.path).strip("/")
    problem = _problem(url, parts.hostname, parts.fragment, path)
    if problem:
        raise PermanentError(shown, "open", "", problem, f"write {form}")
    unknown = sorted({name for name, _ in pairs} - options)
    if unknown or len({name for name, _ in pairs}) != len(pairs):
        what = f"unknown option {unknown[0]!r}" if unknown else "an option is given twice"
        known = f"known: {', '.join(sorted(options))}" if options else "there are no options"
        raise PermanentError(shown, "open", "", what, known)
    user = unquote(parts.username or "")
    host = parts.hostname or ""
    return Address(url, parts.scheme, user, host, port, path, MappingProxyType(dict(pairs)))


def _parse_remote(url: str, form: str) -> Address:
    scheme, _, rest = url.partition(":")
    remote, _, folder = rest.partition(":")
    path = folder.strip("/")
    problem = "" if is_remote(remote) else "names no remote of rclone"
    problem = (
        problem
        or _problem(url, remote, "", path)
        or ("has an empty folder in its path" if "//" in folder else "")
    )
    if problem:
        raise PermanentError(without_secrets(url), "open", "", problem, f"write {form}")
    return Address(url, scheme, "", remote, None, path, MappingProxyType({}))


def is_remote(name: str) -> bool:
    """Whether rclone can have a remote of that name. What else it takes in its place may run programs."""
    return _REMOTE.fullmatch(name) is not None


def scheme_of(url: str) -> str:
    """The scheme of the URL of a cloud; "" for a text that is none."""
    scheme, _, rest = url.partition(":")
    return scheme if rest.startswith("//") or (rest and scheme in _REMOTES) else ""


def start_of(scheme: str) -> str:
    """How URLs of a scheme begin."""
    return f"{scheme}:" if scheme in _REMOTES else f"{scheme}://"


def short_name(url: str) -> str:
    """A name for the cloud at `url`, "" when nothing in it will do. Raises ValueError for what is no URL."""
    if scheme_of(url) in _REMOTES:
        return url.split(":")[1]
    parts = urlsplit(url)
    return PurePosixPath(unquote(parts.path)).name or parts.netloc


def without_secrets(url: str) -> str:
    """Return `url` without the password and, when it has one, without options: fit to be shown."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, host = authority.rpartition("@")
    if separator and ":" in login:
        return f"{scheme}://{login.partition(':')[0]}{at}{host}{slash}{path.partition('?')[0]}"
    return url


def _problem(url: str, host: str | None, fragment: str, path: str) -> str:
    if not host:
        return "names no host or bucket"
    if fragment:
        return "has a # in it, which a URL writes as %23"
    if any(ord(character) < 32 for character in path):
        return "has a control character in its path"
    if any(segment in ("", ".", "..") for segment in path.split("/")) and path:
        return "has an empty, . or .. folder in its path"
    return f"is longer than {_MAX_URL} characters" if len(url) > _MAX_URL else ""
