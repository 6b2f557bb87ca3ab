"""What drivers make at their first use, for it takes secrets and libraries that are slow to load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from backends.credentials import Credentials, Secrets

__all__ = ["LazyClient"]


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class LazyClient(Generic[C]):
    """A client of the service at `url`. Thread-safe."""

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        known: frozenset[str],
        connect: Callable[[Secrets], C],
    ) -> None:
        """`known` are the names of the secrets that `connect` understands."""
        self._url = url
        self._credentials = credentials
        self._known = known
        self._connect = connect
        self._lock = threading.Lock()
        self._client: C | None = None

    def get(self) -> C:
        """Return the client. Raises what `connect` raises, and `StoreError` for secrets that are unknown."""
        with self._lock:
            if self._client is None:
                secrets = self._credentials.lookup(self._url)
                secrets.require_known(self._url, self._known)
                self._client = self._connect(secrets)
            return self._client

    def close(self) -> None:
        """Close the client if there is one."""
        with self._lock:
            if self._client is not None:
                self._client.close()
