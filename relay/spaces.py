"""The spaces of a relay: each is for one volume, has a token that opens it, and may hold so many bytes.

They are in `spaces.json` of the relay's folder, a file that only its user can read. The relay looks at it
whenever it has changed, so commands need not talk to the relay.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hybrisfs.client import HybrisError, UsageError, quoted
from hybrisfs.secret_file import identity_of, read_secret, write_secret
from relay.files import alone

__all__ = ["Space", "Spaces"]

_MOST: Final = 1000
_LARGEST: Final = 1 << 20  # bytes of the file

_Name = Annotated[str, Meta(pattern=r"\A[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")]


class Space(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A space, under what address devices reach the relay, and since when there is one."""

    name: _Name
    token: Annotated[str, Meta(pattern=r"\A[a-z2-7]{32}\Z")]
    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=1, le=65535)]
    added: Annotated[int, Meta(ge=0, le=1 << 40)]
    """In seconds since the epoch."""
    quota: Annotated[int, Meta(ge=0, le=1 << 60)] = 0
    """Bytes; 0: as many as there is room for."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[int, Meta(ge=1, le=1)]
    spaces: Annotated[list[Space], Meta(max_length=_MOST)]


class Spaces:
    """The spaces of one relay. Methods raise HybrisError when their file is damaged, OSError."""

    def __init__(self, folder: Path) -> None:
        """*folder* is the relay's, which is made when the first space is."""
        self._folder = folder
        self._path = folder / "spaces.json"
        self._stamp: object = None
        self._known: dict[str, Space] = {}

    def all(self) -> list[Space]:
        """Sorted by name."""
        content = read_secret(self._path, _LARGEST)
        if content is None:
            return []
        try:
            return sorted(msgspec.json.decode(content, type=_File).spaces, key=lambda one: one.name)
        except msgspec.DecodeError as error:
            raise HybrisError(f"{self._path} is damaged", str(error), "Mend it, or move it away.") from error

    def opened(self, name: str, token: str) -> Space | None:
        """The space of that name, if the token opens it."""
        stamp = identity_of(self._path)
        if stamp != self._stamp:
            self._known = {one.name: one for one in self.all()}
            self._stamp = stamp
        found = self._known.get(name)
        # Compared in any case, so that the time tells nothing of which spaces there are.
        right = hmac.compare_digest(token.encode(), found.token.encode() if found else b"")
        return found if right else None

    def get(self, name: str) -> Space:
        """Raises UsageError when there is none of that name."""
        found = next((one for one in self.all() if one.name == name), None)
        if found is None:
            raise UsageError(
                f"there is no space {quoted(name)}", "", "hybrisfs relay list lists those there are."
            )
        return found

    def add(self, name: str, host: str, port: int, quota: int, now: float) -> Space:
        """Make a space with a token of its own. Raises UsageError for a bad name, or one that is taken."""
        entries = {"name": name, "token": _new_token(), "host": host, "port": port}
        try:
            made = msgspec.convert(entries | {"added": int(now), "quota": quota}, type=Space)
        except msgspec.ValidationError:
            allowed = "allowed are up to 32 small letters, digits and hyphens, not first or last"
            raise UsageError(f"{quoted(name)} cannot name a space", allowed) from None
        self._change(lambda spaces: self._with(spaces, made))
        return made

    def renew(self, name: str) -> Space:
        """Give a space another token: the one before opens it no longer. Raises UsageError."""
        made = msgspec.structs.replace(self.get(name), token=_new_token())
        self._change(lambda spaces: [made if one.name == name else one for one in spaces])
        return made

    def remove(self, name: str) -> None:
        """Forget a space; its objects stay. Raises UsageError when there is none of that name."""
        self.get(name)
        self._change(lambda spaces: [one for one in spaces if one.name != name])

    @staticmethod
    def _with(spaces: list[Space], made: Space) -> list[Space]:
        if any(one.name == made.name for one in spaces):
            raise UsageError(f"there is a space {quoted(made.name)} already")
        if len(spaces) >= _MOST:
            raise UsageError(f"there are {_MOST} spaces already")
        return [*spaces, made]

    def _change(self, change: Callable[[list[Space]], list[Space]]) -> None:
        with alone(self._folder):
            write_secret(self._path, msgspec.json.encode(_File(1, change(self.all()))))


def _new_token() -> str:
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    return "".join(secrets.choice(letters) for _ in range(32))
