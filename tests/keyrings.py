"""Keyrings in place of the system's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keyring
import keyring.backend
import keyring.errors

__all__ = ["MemoryKeyring", "in_use"]


class MemoryKeyring(keyring.backend.KeyringBackend):
    """A keyring that remembers, or is locked."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.content: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise keyring.errors.KeyringLocked("locked")
        return self.content.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.content[service, username] = password


@contextmanager
def in_use(ring: keyring.backend.KeyringBackend) -> Iterator[None]:
    """This is the keyring of the program while the block runs."""
    before = keyring.get_keyring()
    keyring.set_keyring(ring)
    try:
        yield
    finally:
        keyring.set_keyring(before)
