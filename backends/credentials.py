"""Where the secrets of clouds come from: a private file, the system's keyring, or the provider's own chain.

A driver asks for the secrets of its URL when it first connects. Asked are, in this order,

1. ``credentials.json`` in the configuration folder, which must be readable by its owner only,
2. the system's keyring (service "hybrisfs", user name: the URL of the cloud),

and what neither has, the driver leaves to the provider's own chain (environment, profile, metadata service),
unless the URL names an endpoint of its own: the chain's secrets are meant for the provider alone.

credentials.json, format version 1:

    {"version": 1,
     "clouds": {"s3://bucket/folder?region=eu-west-1": {"access_key_id": "...", "secret_access_key": "..."},
                "az://container?account=name":         {"account_key": "..."},
                "webdavs://user@host/folder":          {"password": "..."}}}

An entry counts for its URL and for all folders below it, but never for other options, host or user: what
is meant for one service is not shown to another one that a URL names as its endpoint. The entry with the
longest path wins. In the keyring is the same JSON object, or a bare password.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from backends.address import without_secrets
from backends.errors import AuthError

__all__ = ["NO_CREDENTIALS", "CredentialStore", "Credentials", "Secrets", "covers"]

_VERSION: Final = 1
_MAX_FILE: Final = 1 << 20  # bytes
_SERVICE: Final = "hybrisfs"


@dataclass(frozen=True)
class Secrets:
    """The secrets of one cloud by name. Empty when there are none. Never shows them."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, name: str) -> str | None:
        """The secret of that name, or None."""
        return self.values.get(name)

    def __bool__(self) -> bool:
        return bool(self.values)

    def require_known(self, url: str, known: frozenset[str]) -> None:
        """Raise `AuthError` for an entry with names that the driver does not know: most likely a slip."""
        unknown = sorted(set(self.values) - known)
        if unknown:
            advice = f"known: {', '.join(sorted(known))}"
            raise AuthError(url, "open", "", f"the credentials have an unknown entry {unknown[0]!r}", advice)


class Credentials(Protocol):
    """What drivers ask for the secrets of a cloud."""

    def lookup(self, url: str) -> Secrets:
        """Return the secrets for this cloud, empty ones when there are none. Raises `AuthError`."""


class _NoCredentials:
    def lookup(self, url: str) -> Secrets:
        return Secrets()


NO_CREDENTIALS: Final[Credentials] = _NoCredentials()
"""Leaves everything to the provider's own chain."""


class CredentialStore:
    """Looks secrets up in a file and in the keyring, each time again."""

    def __init__(self, file: Path, *, keyring: bool = True) -> None:
        self._file = file
        self._keyring = keyring

    def lookup(self, url: str) -> Secrets:
        """See `Credentials.lookup`. Raises `AuthError` when the file is open to others or damaged."""
        values = _best(self._read_file(url), url)
        if values is None and self._keyring:
            values = _from_keyring(url)
        return Secrets(values or {})

    def add(self, url: str, values: Mapping[str, str]) -> None:
        """Write the secrets of a cloud into the file, readable by its owner only, in place of older ones.

        Raises `AuthError` when the file is open to others or damaged, OSError, ValueError.
        """
        self.add_all({url: values})

    def add_all(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        """`add` for several clouds, by URL: all of them, or none when it raises."""
        if not all(_is_entry(values) for values in secrets.values()):
            raise ValueError("the secrets of a cloud are an object of texts")
        if not secrets:
            return
        new = {url: dict(values) for url, values in secrets.items()}
        self._write({**self._read_file(next(iter(new))), **new})

    def remove(self, urls: Iterable[str], kept: Collection[str]) -> None:
        """Remove from the file what counts for one of these clouds, and for none of those that are *kept*.

        Raises `AuthError` when the file is open to others or damaged, OSError.
        """
        for url in urls:
            entries = self._read_file(url)
            rest = {
                entry: values
                for entry, values in entries.items()
                if not covers(entry, url) or any(covers(entry, one) for one in kept)
            }
            if len(rest) < len(entries):
                self._write(rest)

    def _write(self, entries: Mapping[str, Mapping[str, str]]) -> None:
        document = json.dumps({"version": _VERSION, "clouds": entries}, indent=2) + "\n"
        temporary = self._file.with_name(f"{self._file.name}.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(document)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(self._file)

    def _read_file(self, url: str) -> Mapping[str, Mapping[str, str]]:
        def refused(reason: str, advice: str) -> AuthError:
            return AuthError(without_secrets(url), "open", "", f"{self._file}: {reason}", advice)

        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise refused(error.strerror or str(error), "check its permissions") from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
                raise refused("is not a file of this user", "make it yours")
            if status.st_mode & 0o077:
                raise refused("others may read it", f"run: chmod 600 {self._file}")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(_MAX_FILE + 1)
        finally:
            os.close(descriptor)
        try:
            return dict(_decode(data))
        except ValueError as error:
            raise refused(str(error), "mend it, or move it away") from None


def _decode(data: bytes) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield (URL, secrets); raises `ValueError` that quotes nothing of the content."""
    if len(data) > _MAX_FILE:
        raise ValueError(f"is larger than {_MAX_FILE} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        place = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"is not valid JSON{place}") from None
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(f"is not in format version {_VERSION}")
    clouds = document.get("clouds")
    if not isinstance(clouds, dict):
        raise ValueError('has no object "clouds"')
    for url, entry in clouds.items():
        if not _is_entry(entry):
            raise ValueError(f"the entry of {without_secrets(url)} is not an object of texts")
        yield url, entry


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())


def _best(entries: Mapping[str, Mapping[str, str]], url: str) -> Mapping[str, str] | None:
    """The entry of `url` or of the nearest folder above it on the same service."""
    fitting = [candidate for candidate in entries if covers(candidate, url)]
    return entries[max(fitting, key=lambda one: len(urlsplit(one).path))] if fitting else None


def covers(entry: str, url: str) -> bool:
    """Whether the entry of one URL counts for another: the same service, and the same folder or one above."""
    try:
        above, below = urlsplit(entry), urlsplit(url)
    except ValueError:
        return False
    if (above.scheme, above.netloc, above.query) != (below.scheme, below.netloc, below.query):
        return False
    parent = above.path.rstrip("/")
    return below.path.rstrip("/") == parent or below.path.startswith(f"{parent}/")


def _from_keyring(url: str) -> Mapping[str, str] | None:
    # Loading the keyring takes long, and most machines without a desktop have none.
    import keyring
    import keyring.errors

    try:
        text = keyring.get_password(_SERVICE, url)
    except keyring.errors.NoKeyringError:
        return None
    except keyring.errors.KeyringError as error:
        reason = f"the system's keyring gives nothing: {error}"
        raise AuthError(without_secrets(url), "open", "", reason, "unlock the keyring") from error
    if text is None:
        return None
    try:
        entry = json.loads(text)
    except ValueError:
        entry = None
    return entry if _is_entry(entry) else {"password": text}
