"""What the clouds of a volume are called: by a person, or after their URLs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from backends.address import scheme_of, short_name, without_secrets
from backends.registry import server_of
from hybrisfs.errors import UsageError
from hybrisfs.merge.cloud_records import MAX_CLOUD_NAME

__all__ = ["name_clouds", "require_name", "unique_name", "unknown_cloud"]

_SHORT: Final = 60  # characters of a name that nobody has chosen


def name_clouds(clouds: Sequence[tuple[str | None, str]], taken: Collection[str] = ()) -> list[str]:
    """The names of *clouds*, given by the names that were chosen for them and their URLs.

    The others are called by the end of their URL; where several end alike, by their host, bucket or the
    folder above; with numbers where these are alike, too. Raises UsageError.
    """
    used = list(taken)
    for name, _ in clouds:
        if name is not None:
            require_name(name, used)
            used.append(name)
    usual = [_candidates(url) for _, url in clouds]
    ends, hosts = Counter(end for end, _ in usual), Counter(host for _, host in usual)
    names: list[str] = []
    for (name, _), (end, host) in zip(clouds, usual, strict=True):
        names.append(name or unique_name(host if ends[end] > 1 and hosts[host] == 1 else end, used))
        used.append(names[-1])
    return names


def _candidates(url: str) -> tuple[str, str]:
    """The end of a URL, and what it is in: a host, a bucket, or the folder above a folder."""
    try:
        end, parts = short_name(url), urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{without_secrets(url)} is not the URL of a cloud", str(error)) from error
    server = urlsplit(server_of(url) or "").hostname if "endpoint=" in parts.query else None
    above = PurePosixPath(unquote(parts.path)).parent.name if parts.netloc or "://" in url else end
    around = server or parts.hostname or above or parts.scheme
    return _fit(end or around), _fit(around)


def _fit(name: str) -> str:
    return "".join(filter(str.isprintable, name))[:_SHORT] or "cloud"


def require_name(name: str, taken: Collection[str] = ()) -> None:
    """Raise UsageError unless a cloud can be called so, beside those whose names are *taken*."""
    if not name or len(name.encode()) > MAX_CLOUD_NAME or not name.isprintable() or scheme_of(name):
        raise UsageError(f"{name[:80]!r} cannot name a cloud")
    if name in taken:
        raise UsageError(f"there is a cloud {name!r} already", "", "Choose another name.")


def unique_name(name: str, taken: Collection[str]) -> str:
    """*name*, with a number behind it if need be."""
    chosen, count = name, 2
    while chosen in taken:
        chosen = f"{name}-{count}"
        count += 1
    return chosen


def unknown_cloud(which: str, names: list[str]) -> UsageError:
    """The error for what names no cloud of a volume, which has those of these *names*."""
    return UsageError(f"this volume has no cloud {which[:80]!r}", "", f"There are: {', '.join(names)}.")
