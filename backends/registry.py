"""From the URL of a cloud to its driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from backends.errors import PermanentError
from backends.file import FileStore
from backends.store import Store

__all__ = ["SCHEMES", "open_store"]

SCHEMES: Final[dict[str, Callable[[str], Store]]] = {"file": FileStore}


def open_store(url: str) -> Store:
    """Return the driver for `url`. Does not touch the cloud.

    Raises `PermanentError` when the URL names no supported kind of cloud or is malformed.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme in SCHEMES:
        return SCHEMES[scheme](url)
    known = ", ".join(f"{name}://" for name in sorted(SCHEMES))
    if url.startswith("/"):
        raise PermanentError(url, "open", "", "a path is not a URL", f"write file://{url}")
    shown = f"unknown kind of cloud {scheme!r}" if separator else "not the URL of a cloud"
    raise PermanentError(url, "open", "", shown, f"supported: {known}")
