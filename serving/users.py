"""Who may use what is served: users with passwords of their own, made here, kept as slow hashes.

A volume's users are in `serve/VOLUME.json` of the settings, a file that only this user can read. Hashes are
those of libsodium (Argon2id), as text with their costs.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from nacl.exceptions import InvalidkeyError
from nacl.pwhash import argon2id

from hybrisfs.client import HybrisError, UsageError, quoted
from hybrisfs.secret_file import identity_of, read_secret, write_secret

__all__ = ["Guard", "User", "Users"]

_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"  # none that looks like another one
_GROUPS, _IN_GROUP = 5, 5  # 123 bits
_MOST_USERS: Final = 100
_LARGEST: Final = 1 << 16  # bytes of the file
_LONGEST: Final = 256  # characters of a password that is tried
_KNOWN: Final = 256  # logins that need no slow hash
_ADDRESSES: Final = 4096  # whose tries are counted

_Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")]


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user, and since when, in seconds since the epoch."""

    name: _Name
    hash: Annotated[str, Meta(pattern=r"\A\$argon2id\$[A-Za-z0-9+/=$,]{60,120}\Z")]
    added: Annotated[int, Meta(ge=0, le=1 << 40)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[int, Meta(ge=1, le=1)]
    users: Annotated[list[User], Meta(max_length=_MOST_USERS)]


class Users:
    """The users of a volume. Methods raise HybrisError when their file is damaged, OSError."""

    def __init__(self, path: Path) -> None:
        """*path* is their file, in a folder that only this user can read."""
        self._path = path

    @property
    def folder(self) -> Path:
        """Where the file is."""
        return self._path.parent

    def all(self) -> list[User]:
        """Sorted by name."""
        content = read_secret(self._path, _LARGEST)
        if content is None:
            return []
        try:
            return sorted(msgspec.json.decode(content, type=_File).users, key=lambda one: one.name)
        except msgspec.DecodeError as error:
            raise HybrisError(
                f"{self._path} is damaged", str(error), "Remove it, and add the users again."
            ) from error

    def stamp(self) -> object:
        """Something that changes when the users do."""
        return identity_of(self._path)

    def add(self, name: str) -> str:
        """Add a user; return the password, which is kept nowhere. Raises UsageError for a bad name."""
        password = "-".join(
            "".join(secrets.choice(_LETTERS) for _ in range(_IN_GROUP)) for _ in range(_GROUPS)
        )
        try:
            user = msgspec.convert(
                {"name": name, "hash": _hash(password), "added": int(time.time())}, type=User
            )
        except msgspec.ValidationError:
            raise UsageError(
                f"{quoted(name)} cannot name a user",
                "allowed are up to 64 letters, digits and . - _ @, a letter or digit first",
            ) from None
        with self._changing() as users:
            if any(one.name == name for one in users):
                raise UsageError(f"there is a user {quoted(name)} already")
            if len(users) >= _MOST_USERS:
                raise UsageError(f"there are {_MOST_USERS} users already")
            self._keep([*users, user])
        return password

    def remove(self, name: str) -> None:
        """Remove a user; a server that runs lets them in no more. Raises UsageError when there is none."""
        with self._changing() as users:
            left = [one for one in users if one.name != name]
            if len(left) == len(users):
                raise UsageError(f"there is no user {quoted(name)}")
            self._keep(left)

    @contextmanager
    def _changing(self) -> Iterator[list[User]]:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # One for all volumes: nothing of one that is given up stays.
        path = self.folder / "users.lock"
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.all()

    def _keep(self, users: list[User]) -> None:
        write_secret(self._path, msgspec.json.encode(_File(1, users)))


def _hash(password: str) -> str:
    return argon2id.str(
        password.encode(), argon2id.OPSLIMIT_INTERACTIVE, argon2id.MEMLIMIT_INTERACTIVE
    ).decode()


class Guard:
    """Decides who is let in. Thread-safe; `admits` computes for a while.

    A password that was right is known for as long as the process and the user live, by a fast hash under a
    key of this process: clients send it with each request.
    """

    def __init__(
        self,
        users: Users,
        *,
        tries: int = 10,
        within: float = 600.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """An address has so many *tries* with wrong passwords within so many seconds."""
        self._users = users
        self._tries = tries
        self._within = within
        self._now = now
        self._key = secrets.token_bytes(32)
        self._nobody = _hash(secrets.token_hex(16))  # to take as long for users that are not there
        self._slow = threading.Semaphore(2)  # each takes 64 MiB
        self._lock = threading.Lock()
        self._stamp: object = object()
        self._hashes: dict[str, str] = {}
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def is_known(self, name: str, password: str) -> bool:
        """Whether the password was right before, and still is. Fast."""
        known = self._known_as(name, password)
        with self._lock:
            return known is not None and known in self._known

    def has_tries(self, address: str) -> bool:
        """Whether somebody at an address may try a password."""
        with self._lock:
            return len(self._recent(address)) < self._tries

    def admits(self, address: str, name: str, password: str) -> bool:
        """Whether it is the password of the user; counts it as a try if not. Raises HybrisError, OSError."""
        with self._slow:  # who waits here for the first login of the same client need not be tried, too
            if self.is_known(name, password):
                return True
            if not self.has_tries(address):
                return False
            known = self._known_as(name, password)
            with self._lock:
                kept = self._hashes.get(name, self._nobody)
            right = len(password) <= _LONGEST and _verify(kept, password)
        with self._lock:
            if right and known is not None:
                self._known[known] = None
                while len(self._known) > _KNOWN:
                    self._known.popitem(last=False)
                return True
            self._failures.setdefault(address, []).append(self._now())
            self._failures.move_to_end(address)
            while len(self._failures) > _ADDRESSES:
                self._failures.popitem(last=False)
        return False

    def _recent(self, address: str) -> list[float]:
        tries = [one for one in self._failures.get(address, []) if self._now() - one < self._within]
        if tries:
            self._failures[address] = tries
        else:
            self._failures.pop(address, None)
        return tries

    def _known_as(self, name: str, password: str) -> bytes | None:
        """How a right password is known; None when there is no such user. Looks at the users once more if
        they have changed."""
        with self._lock:
            stamp = self._users.stamp()
            if stamp != self._stamp:
                self._hashes = {one.name: one.hash for one in self._users.all()}
                self._stamp = stamp
            kept = self._hashes.get(name)
        if kept is None:
            return None
        said = f"{kept}\0{password}".encode(errors="surrogatepass")
        return hmac.new(self._key, said, hashlib.sha256).digest()


def _verify(kept: str, password: str) -> bool:
    try:
        return argon2id.verify(kept.encode(), password.encode(errors="surrogatepass"))
    except InvalidkeyError:
        return False
