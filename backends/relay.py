"""A cloud at a relay of one's own, as `hybrisfs relay` serves it: ``relay://host:8017/space?pin=HASH``.

The pin is the SHA-256 hash of the relay's certificate in hex: no other one is taken, and this one whatever
names and dates are in it. Credentials: `token`, which opens the space.

What it is asked, and answers, is specified in `relay.objects`. The relay is believed as little as any cloud.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from backends.address import Address
from backends.body import BodyError
from backends.credentials import Secrets
from backends.driver import CloudKind, HttpDriver, Secret, as_bytes
from backends.errors import (
    AuthError,
    CorruptError,
    MissingError,
    MissingRootError,
    PermanentError,
    StoreError,
)
from backends.http_client import HttpClient, RefusedError
from backends.http_errors import HttpFailure, connection_error, http_error
from backends.store import MAX_PAGE, Buffer, Page, StoredObject, is_name

__all__ = ["USUAL_PORT", "RelayStore", "pin_of", "port_of"]

USUAL_PORT: Final = 8017

_SPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_PIN: Final = re.compile(r"[0-9a-f]{64}")
_LONGEST_LISTING: Final = 1 << 20  # bytes
_OTHER_CERTIFICATE: Final = "Fingerprints did not match"  # says urllib3


def _problem(address: Address) -> str:
    if address.user:
        return "has a user: a relay knows tokens only"
    if not _SPACE.fullmatch(address.path):
        return "names no space of a relay"
    return "" if _PIN.fullmatch(address.option("pin") or "") else "has no pin, 64 hexadecimal digits"


def port_of(address: Address) -> int:
    """The TCP port of a relay."""
    return address.port or USUAL_PORT


def pin_of(address: Address) -> bytes:
    """The hash of a relay's certificate."""
    return bytes.fromhex(address.options["pin"])


class _Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    objects: Annotated[list[tuple[str, Annotated[int, Meta(ge=0)]]], Meta(max_length=MAX_PAGE)]
    more: bool


class RelayStore(HttpDriver[HttpClient]):
    """A `backends.store.Store` in a space of a relay."""

    kind = CloudKind(
        schemes=("relay",),
        form="relay://host:8017/space?pin=HASH",
        what="a relay on a NAS or rented server: hybrisfs relay",
        options=frozenset({"pin"}),
        secrets=(Secret("token", "Token"),),
        problem=_problem,
        keeps_nothing="a relay has no older versions of objects",
    )
    many: ClassVar = True
    """See `takes_many`."""

    def _initialise(self) -> None:
        self._client().call("PUT", "")

    def _put(self, client: HttpClient, name: str, data: Buffer) -> None:
        client.call("PUT", _path(name), as_bytes(data))

    def _put_if_absent(self, client: HttpClient, name: str, data: Buffer) -> bool:
        with self._tolerating(412):
            client.call("PUT", _path(name), as_bytes(data), **{"If-None-Match": "*"})
            return True
        return False

    def _get(self, client: HttpClient, name: str, limit: int) -> bytes:
        return client.get(_path(name), limit)[1]

    def _get_range(self, client: HttpClient, name: str, offset: int, length: int) -> bytes:
        with self._tolerating(416):
            asked = f"bytes={offset}-{offset + length - 1}"
            status, data, _ = client.get(_path(name), length, Range=asked)
            if status != 206:
                raise BodyError("garbled", f"HTTP {status} is not an answer to a request for a part")
            return data
        return b""

    def _size(self, client: HttpClient, name: str) -> int:
        return client.size(_path(name))

    def _get_if_changed(
        self, client: HttpClient, name: str, tag: str | None, limit: int
    ) -> tuple[bytes, str] | None:
        condition = {} if tag is None else {"If-None-Match": f'"{tag}"'}
        status, data, headers = client.get(_path(name), limit, **condition)
        if status == 304:
            if tag is None:
                raise BodyError("garbled", "HTTP 304 is not an answer to a request without a condition")
            return None
        return data, headers.get("ETag", "").strip('"')

    def _delete(self, client: HttpClient, name: str) -> None:
        client.call("DELETE", _path(name))

    def _delete_many(self, names: Sequence[str]) -> None:
        with self._calling("delete_many", "") as client:
            for start in range(0, len(names), MAX_PAGE):
                client.call("POST", "delete", msgspec.json.encode(names[start : start + MAX_PAGE]))

    def _list(self, client: HttpClient, prefix: str, after: str, limit: int) -> Page:
        query = urlencode({"prefix": prefix, "after": after, "limit": limit})
        _, data, _ = client.get("", _LONGEST_LISTING, query)
        try:
            found = msgspec.json.decode(data, type=_Listing)
        except msgspec.DecodeError as error:
            raise BodyError("garbled", f"the listing makes no sense: {error}") from error
        entries, last = list[StoredObject](), after
        for name, size in found.objects:
            if not name.startswith(prefix) or name <= last or len(entries) == limit:
                raise CorruptError(self.url, "list", prefix, "other objects are listed than were asked for")
            last = name
            if is_name(name):
                entries.append(StoredObject(name, size))
        if found.more and not entries:
            raise CorruptError(self.url, "list", prefix, "the listing does not come to an end")
        return Page(tuple(entries), more=found.more)

    def _connect(self, secrets: Secrets) -> HttpClient:
        import ssl

        token = secrets.get("token")
        if not token:
            reason = "this machine has no token for the relay"
            raise AuthError(self.url, "open", "", reason, f"hybrisfs cloud login {self.url}")
        options: dict[str, Any] = {
            "assert_fingerprint": self._address.options["pin"],
            "cert_reqs": "CERT_NONE",
            "ssl_minimum_version": ssl.TLSVersion.TLSv1_3,
        }
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        origin = f"https://{host}:{port_of(self._address)}"
        headers = {"Authorization": f"Bearer {token}"}
        return HttpClient(origin, f"/{self._address.path}/", headers, self._timing, **options)

    def _failure(self, error: Exception) -> HttpFailure | None:
        return error.failure if isinstance(error, RefusedError) else None

    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        if failure.status == 404 and failure.header("Hybrisfs-Missing") == "object":
            return MissingError(self.url, operation, name, "no such object")
        if failure.status == 404:
            reason, advice = "the relay has nothing in this space", "is the relay's disk mounted?"
            return MissingRootError(self.url, operation, name, reason, advice)
        return http_error(self.url, operation, name, failure)

    def _library_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        from urllib3.exceptions import HTTPError, SSLError

        if isinstance(error, SSLError) and _OTHER_CERTIFICATE in str(error):
            reason = "it shows another certificate than the relay's"
            advice = "ask for its code: it was set up again, or another machine answers there"
            return PermanentError(self.url, operation, name, reason, advice)
        if isinstance(error, HTTPError):
            return connection_error(self.url, operation, name, error)
        return None


def _path(name: str) -> str:
    return f"o/{name}"
