"""The secrets that people are asked for, as the records of the drivers name them."""

from __future__ import annotations

from urllib.parse import urlsplit

from backends.driver import Secret
from backends.registry import KINDS

__all__ = ["Secret", "secret_names", "secrets_of"]


def secret_names(scheme: str) -> frozenset[str]:
    """The names of the secrets that clouds of a kind take."""
    return frozenset(secret.name for secret in KINDS[scheme].secrets)


def secrets_of(url: str) -> tuple[Secret, ...]:
    """The secrets that the cloud at *url* takes, without those that the URL states. Raises ValueError for
    what is no URL; empty for a kind that takes none or is unknown."""
    parts = urlsplit(url)
    taken = KINDS[parts.scheme].secrets if parts.scheme in KINDS else ()
    return tuple(secret for secret in taken if secret.name != "user" or not parts.username)
