"""What containers and keys may be called."""

from __future__ import annotations

from typing import Final

from hybrisfs.errors import UsageError

__all__ = ["MAX_KEY", "check_container", "encode_key"]

MAX_KEY: Final = 1024  # bytes
_MAX_CONTAINER: Final = 255  # bytes


def check_container(name: str) -> str:
    """Return *name*; raise UsageError unless it may name a container."""
    if not 0 < len(_utf8(name)) <= _MAX_CONTAINER or "/" in name or not name.isprintable():
        raise UsageError(
            f"{name[:80]!r} cannot name a container",
            f"allowed are 1 to {_MAX_CONTAINER} bytes of printable text without a slash",
        )
    return name


def encode_key(key: str) -> bytes:
    """The key as it is stored. Raises UsageError when it cannot be one."""
    encoded = _utf8(key)
    if not 0 < len(encoded) <= MAX_KEY or "\0" in key:
        raise UsageError(f"{key[:80]!r} cannot be a key", f"allowed are 1 to {MAX_KEY} bytes of text")
    return encoded


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text[:80]!r} is no valid text") from None
