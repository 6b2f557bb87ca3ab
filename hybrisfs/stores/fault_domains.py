"""Which clouds of a volume would be lost together: those on one disk, at one host, in one account.

A volume that bears the loss of f clouds counts each as one. Nothing is refused here: two clouds on one disk
do to try a volume out, and of two accounts at one provider nobody can tell how far apart they are.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from backends.address import scheme_of, short_name
from backends.credentials import Credentials
from backends.errors import StoreError
from backends.registry import secrets_of, server_of

__all__ = ["lost_together"]


def lost_together(clouds: Sequence[tuple[str, str]], credentials: Credentials) -> list[str]:
    """A sentence on each group of *clouds*, given by name and URL, that one failure can take."""
    domains: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, url in clouds:
        # To open the cloud says what is wrong with its URL or its secrets.
        with contextlib.suppress(ValueError, OSError, StoreError):
            domains[_domain(url, credentials)].append(name)
    return [
        f"{', '.join(names[:-1])} and {names[-1]} are {where}, so they may be lost together: a volume that "
        "counts on them as on several clouds is less safe than it says"
        for (where, *_), names in domains.items()
        if len(names) > 1
    ]


def _domain(url: str, credentials: Credentials) -> tuple[str, ...]:
    """What a cloud is lost with, first as it follows "they are". Raises ValueError, OSError, StoreError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(os.path.normpath(unquote(parts.path, errors="surrogateescape")))
        while not folder.exists():
            folder = folder.parent
        return "on one disk", str(folder.stat().st_dev)
    if (scheme := scheme_of(url)) == "rclone":
        return (f"in one remote of {scheme}, {short_name(url)}",)
    host = urlsplit(server_of(url) or "").hostname or parts.hostname or ""
    accounts = [secret.name for secret in secrets_of(url) if secret.account]
    if not accounts:
        return (f"at one host, {host}",)
    secrets = credentials.lookup(url)
    known = next((value for name in accounts if (value := secrets.get(name))), "")
    return f"in one account at {host}", known, *parse_qs(parts.query).get("profile", [])
