"""Strict access to the arguments of a command."""

from __future__ import annotations

from pathlib import Path

from hybrisfs.errors import UsageError
from hybrisfs.wire import Message

__all__ = [
    "flag",
    "folder",
    "number",
    "optional_folder",
    "optional_secrets",
    "optional_text",
    "seconds",
    "text",
    "texts",
]

_MAX_TEXT = 8192  # characters; more than any path
_MAX_TEXTS = 256
_MAX_SECRET = 16384  # characters; more than the key file of a service account


def text(arguments: Message, key: str) -> str:
    """The text `key`. All of these raise `UsageError` for a wrong type or a value out of bounds."""
    value = optional_text(arguments, key)
    if value is None:
        raise UsageError(f"{key} is missing")
    return value


def optional_text(arguments: Message, key: str) -> str | None:
    """The text `key`, or None when it is left out."""
    value = arguments.get(key)
    if value is not None and (not isinstance(value, str) or len(value) > _MAX_TEXT or "\0" in value):
        raise UsageError(f"{key} must be a text")
    return value


def texts(arguments: Message, key: str) -> list[str]:
    """The list of texts `key`."""
    values = arguments.get(key)
    if not isinstance(values, list) or len(values) > _MAX_TEXTS:
        raise UsageError(f"{key} must be a list")
    return [text({key: value}, key) for value in values]


def optional_secrets(arguments: Message, key: str) -> dict[str, str] | None:
    """The texts by name `key`, or None when they are left out. The error never shows any."""
    values = arguments.get(key)
    if values is None:
        return None
    if not isinstance(values, dict) or len(values) > _MAX_TEXTS:
        raise UsageError(f"{key} must be texts by name")
    return {text({"name": name}, "name"): _secret(key, value) for name, value in values.items()}


def _secret(key: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_SECRET or "\0" in value:
        raise UsageError(f"{key} must be texts of 1 to {_MAX_SECRET} characters")
    return value


def folder(arguments: Message, key: str) -> Path:
    """The absolute path `key`."""
    value = optional_folder(arguments, key)
    if value is None:
        raise UsageError(f"{key} is missing")
    return value


def optional_folder(arguments: Message, key: str) -> Path | None:
    """The absolute path `key`, or None when it is left out."""
    value = optional_text(arguments, key)
    if value is None:
        return None
    if not value.startswith("/"):
        raise UsageError(f"{key} must be an absolute path")
    return Path(value)


def flag(arguments: Message, key: str) -> bool:
    """The switch `key`; off when left out."""
    value = arguments.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{key} must be true or false")
    return value


def optional_flag(arguments: Message, key: str) -> bool | None:
    """The switch `key`, or None when it is left out."""
    return flag(arguments, key) if arguments.get(key) is not None else None


def number(arguments: Message, key: str) -> int | None:
    """The whole number `key`, or None when it is left out."""
    value = arguments.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise UsageError(f"{key} must be a whole number")
    return value


def seconds(arguments: Message, key: str) -> float | None:
    """The duration `key` in seconds, or None when it is left out."""
    value = arguments.get(key)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise UsageError(f"{key} must be a number of seconds")
    return float(value)
