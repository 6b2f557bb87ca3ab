"""HTTP sessions for the SDKs that send with `requests`: guarded answers, no retries, no redirects, no logins
but the SDK's own.
"""

from __future__ import annotations

from typing import Any, Final, cast

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from backends.body import GuardedBody, Timing
from backends.http_errors import REDIRECTS, RedirectedError
from backends.pacing import PacedBody

__all__ = ["guard"]

_CONNECTIONS: Final = 16
_BLOCK: Final = 1 << 16  # bytes of a request that are sent at a time


def guard(session: requests.Session, timing: Timing, limit: int | None = None) -> None:
    """Let `session` send all requests through `_GuardedAdapter`, and as the SDK has made them. `limit` is for
    answers that the caller of a driver never sees, in bytes.
    """
    # Otherwise ~/.netrc may have a login for whatever host is named, and it replaces what the SDK has signed.
    session.auth = _AsSigned()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _GuardedAdapter(timing, limit))


class _AsSigned(AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class _GuardedAdapter(HTTPAdapter):
    def __init__(self, timing: Timing, limit: int | None) -> None:
        self._timing = timing
        self._limit = limit
        super().__init__(pool_connections=4, pool_maxsize=_CONNECTIONS, max_retries=0)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, blocksize=_BLOCK, **options)

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        """Raises `BodyError` and `RedirectedError` besides what `requests` raises."""
        if isinstance(request.body, bytes):
            # Bytes would be sent in one call, for which the time to connect would have to do.
            request.body = cast("Any", PacedBody(request.body))
        response = super().send(request, *arguments, **options)
        if response.status_code in REDIRECTS and "Location" in response.headers:
            response.close()
            raise RedirectedError
        response.raw = GuardedBody(response.raw, self._timing, self._limit)
        return response
