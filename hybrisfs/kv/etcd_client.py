"""A client of etcd (3.5 or newer) through its JSON gateway: ranges, transactions, leases, watches.

The gateway is etcd's gRPC interface as HTTP, `POST /v3/...` with JSON objects
(https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/). Every range here is linearizable: a quorum has
confirmed that nothing newer was committed when it was asked for.

Several endpoints are tried one after the other, the one that answered last first. A request that only reads,
or that may be made twice, goes on to the next endpoint until its time is up. Of a transaction without an
answer nobody knows whether it took place: `OutcomeUnknownError` is raised, and the caller finds out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import msgspec
import urllib3
from msgspec.structs import replace

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kv.etcd_requests import (
    Authenticated,
    Found,
    KeptAlive,
    Lease,
    Range,
    Ranged,
    Refusal,
    Transacted,
    WatchLine,
    as_text,
    change_request,
    compare_request,
)
from hybrisfs.kv.service import (
    Compare,
    KeyValue,
    MetadataService,
    Outcome,
    OutcomeUnknownError,
    Put,
    Reading,
    Remove,
    ServiceError,
    after_prefix,
)
from hybrisfs.kv.service_url import Access, ServiceUrl

__all__ = ["EtcdClient"]

_PAGE: Final = 1000  # keys
_MOST_ANSWER: Final = 64 << 20  # bytes
_MOST_EVENT: Final = 16 << 20  # bytes of one line of a watch
_UNAUTHENTICATED: Final = 16  # codes of gRPC
_PERMISSION_DENIED: Final = 7
_INVALID: Final = 3
_LOCKED_OUT: Final = ("authentication failed", "user name is empty")
_EXHAUSTED: Final = 8
_UNAVAILABLE: Final = (1, 2, 4, 10, 14)  # cancelled, unknown, deadline, aborted, unavailable
_NO_TIME: Final = "no time was left"
_PAUSE: Final = 0.1  # seconds, when no endpoint has answered
_CONNECT_SECONDS: Final = 3.0
_SILENCE_SECONDS: Final = 60.0  # of a watch, after which it begins again

T = TypeVar("T")


class EtcdClient(MetadataService):
    """Thread-safe. Every call ends within *timeout* seconds, whatever the servers do."""

    def __init__(
        self,
        url: ServiceUrl,
        access: Access,
        timeout: float,
        environment: Environment,
        root: str = "",
    ) -> None:
        """*root* is what all keys begin with, after the prefix that the URL names."""
        super().__init__(environment)
        self._root = (f"{url.prefix}/{root}" if url.prefix else root).encode()
        self._endpoints = [f"{'https' if url.tls else 'http'}://{host}" for host in url.hosts]
        self._user = None if url.user is None else (url.user, access.password or "")
        self._timeout = timeout
        self._lock = threading.Lock()
        self._token: str | None = None
        self._lease: int | None = None
        tls: dict[str, Any] = {}
        if access.authority is not None:
            tls["ca_certs"] = str(access.authority)
        if access.certificate is not None:
            tls["cert_file"] = str(access.certificate)
        self._pool = urllib3.PoolManager(maxsize=64, retries=False, block=False, **tls)

    @property
    def address(self) -> str:
        """What people call it."""
        return ", ".join(self._endpoints)

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        """See `MetadataService.get`. All are of one moment."""
        if len(keys) == 1:
            return _first([self.range(Range(keys[0]))])
        asked = [Range(key) for key in keys]
        ranges = {"success": [{"request_range": one.request(self._root)} for one in asked]}
        return _first(self._found(self._repeatedly("kv/txn", ranges, Transacted), len(asked)))

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        """See `MetadataService.scan`. All are of one moment."""
        for page in self.pages(Range(first, end, _PAGE, keys_only=keys_only)):
            yield from page.keys

    def groups(self, kind: bytes) -> Sequence[bytes]:
        """See `MetadataService.groups`."""
        found = []
        prefix = kind + b"/"
        first: bytes = prefix
        while keys := self.range(Range(first, after_prefix(prefix), 1, keys_only=True)).keys:
            found.append(keys[0].key[len(prefix) :].partition(b"/")[0])
            first = after_prefix(prefix + found[-1] + b"/")
        return found

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        """See `MetadataService.reading`."""
        return _Reading(self, Range(first, end, size))

    def range(self, asked: Range) -> Found:
        """Raises ServiceError."""
        answer = self._repeatedly("kv/range", asked.request(self._root), Ranged)
        try:
            return answer.found(self._root)
        except msgspec.ValidationError as error:
            raise self._strange(str(error)) from error

    def pages(self, asked: Range, page: Found | None = None) -> Iterator[Found]:
        """All of a range in portions of its limit, as of the moment of the first, *page* if that is there
        already. Raises ServiceError."""
        first, revision = asked.first, asked.revision
        while True:
            found = page or self.range(replace(asked, first=first, revision=revision))
            page = None
            keys = [first, *(one.key for one in found.keys)]
            if any(one > other for one, other in pairwise(keys)) or (found.more and len(keys) < 2):
                raise self._strange("keys out of order")
            yield found
            if not found.more:
                return
            first, revision = found.keys[-1].key + b"\0", revision or found.revision

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        """See `MetadataService.transact`."""
        changes = [change_request(self._root, one) for one in then]
        answer = self._transact(compare, changes, otherwise)
        found = self._found(answer, 0 if answer.succeeded else len(otherwise))
        revision = int(answer.header.revision)
        made = {one.key: revision for one in then if isinstance(one, Put)} if answer.succeeded else {}
        return Outcome(answer.succeeded, made, _first(found))

    def _transact(
        self, compare: Sequence[Compare], changes: list[dict[str, Any]], otherwise: Sequence[bytes] = ()
    ) -> Transacted:
        asked = {
            "compare": [compare_request(self._root, one) for one in compare],
            "success": changes,
            "failure": [{"request_range": Range(key).request(self._root)} for key in otherwise],
        }
        deadline = self._environment.monotonic() + self._timeout
        return self._ask("kv/txn", asked, Transacted, deadline)

    def announce(self, key: bytes, seconds: int) -> None:
        """See `MetadataService.announce`: a key with a lease."""
        if self._lease is None or not self._goes_on(self._lease):
            lease = int(self._repeatedly("lease/grant", {"TTL": str(seconds)}, Lease).ID)
            change = change_request(self._root, Put(key, b""), lease)
            self._repeatedly("kv/txn", {"success": [change]}, Transacted)
            self._lease = lease

    def _goes_on(self, lease: int) -> bool:
        answer = self._repeatedly("lease/keepalive", {"ID": str(lease)}, KeptAlive)
        return int(answer.result.TTL) > 0

    def withdraw(self) -> None:
        """See `MetadataService.withdraw`."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self._repeatedly("lease/revoke", {"ID": str(lease)}, msgspec.Raw)

    def watch(self, key: bytes, revision: int, changed: Callable[[], None]) -> contextlib.closing[_Watch]:
        """See `MetadataService.watch`."""
        return contextlib.closing(_Watch(self._stream, self._root + key, revision + 1, changed))

    def check(self) -> None:
        """See `MetadataService.check`."""
        self.range(Range(b"hybrisfs"))

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    # -- how -------------------------------------------------------------------------------------

    def _repeatedly(self, path: str, asked: dict[str, Any], kind: type[T]) -> T:
        """Ask until there is an answer: what may be asked twice."""
        deadline = self._environment.monotonic() + self._timeout
        trouble: OutcomeUnknownError | None = None
        while True:
            try:
                return self._ask(path, asked, kind, deadline)
            except OutcomeUnknownError as error:
                if trouble is None or error.why != _NO_TIME:
                    trouble = error
                if self._environment.monotonic() + _PAUSE >= deadline:
                    raise ServiceError(trouble.what, trouble.why, trouble.advice) from trouble
                self._environment.sleep(_PAUSE)

    def _ask(self, path: str, asked: dict[str, Any], kind: type[T], deadline: float) -> T:
        """Ask the endpoints in turn, until one has got the request. Raises OutcomeUnknownError when it then
        does not answer, and when there is none."""
        why = _NO_TIME
        for endpoint in list(self._endpoints):
            left = deadline - self._environment.monotonic()
            if left <= 0:
                break
            try:
                answer = self._post(endpoint, path, asked, left)
            except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
                why = f"{endpoint} cannot be reached: {_reason(error)}"
                continue  # it has not got the request
            except (urllib3.exceptions.HTTPError, OSError) as error:
                self._prefer_others(endpoint)
                raise self._unknown(f"{endpoint} did not answer: {_reason(error)}") from error
            self._prefer(endpoint)
            try:
                return msgspec.json.decode(answer, type=kind)
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                raise self._unknown(f"{endpoint} answers in a way that is not etcd's: {error}") from error
        raise self._unknown(why)

    def _post(self, endpoint: str, path: str, asked: dict[str, Any], left: float) -> bytes:
        """Raises urllib3's errors, OSError, ServiceError."""
        for is_second in (False, True):
            token = self._authenticated(endpoint, left)
            status, answer = self._request(endpoint, path, asked, token, left)
            if status == 200:
                return answer
            refusal = _refusal(answer)
            if refusal.code != _UNAUTHENTICATED and "invalid auth token" not in refusal.message:
                raise self._refused(endpoint, status, refusal)
            with self._lock:
                if self._token == token:
                    self._token = None
            if is_second or self._user is None:
                raise self._refused(endpoint, status, refusal)
        raise AssertionError

    def _request(
        self, endpoint: str, path: str, asked: dict[str, Any], token: str | None, left: float
    ) -> tuple[int, bytes]:
        timeout = urllib3.Timeout(total=left, connect=min(left, _CONNECT_SECONDS))
        response = self._open(endpoint, path, asked, token, timeout)
        try:
            answer = response.read(_MOST_ANSWER + 1)
            if len(answer) > _MOST_ANSWER:
                raise urllib3.exceptions.ResponseError("the answer is too long")
            response.drain_conn()
        finally:
            response.release_conn()
        return response.status, answer

    def _open(
        self,
        endpoint: str,
        path: str,
        asked: dict[str, Any],
        token: str | None,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Content-Type": "application/json"} | ({"Authorization": token} if token else {})
        return self._pool.request(
            "POST",
            f"{endpoint}/v3/{path}",
            body=msgspec.json.encode(asked),
            headers=headers,
            timeout=timeout,
            preload_content=False,
            redirect=False,
        )

    def _authenticated(self, endpoint: str, left: float) -> str | None:
        if self._user is None:
            return None
        with self._lock:
            if self._token is None:
                name, password = self._user
                asked = {"name": name, "password": password}
                status, answer = self._request(endpoint, "auth/authenticate", asked, None, left)
                if status != 200:
                    raise self._refused(endpoint, status, _refusal(answer))
                self._token = msgspec.json.decode(answer, type=Authenticated).token
            return self._token

    def _refused(self, endpoint: str, status: int, refusal: Refusal) -> ServiceError:
        what, why = f"the etcd at {self.address} refused a request", refusal.message or refusal.error
        if refusal.code in _UNAVAILABLE or not why:
            self._prefer_others(endpoint)
            return self._unknown(f"{endpoint}: {why or f'HTTP status {status}'}")
        if refusal.code == _EXHAUSTED and "space exceeded" in why:
            return ServiceError(
                f"the etcd at {self.address} is full", why, "Compact and defragment it, or raise its quota."
            )
        if refusal.code == _INVALID and "too many operations" in why:
            return ServiceError(
                "the transaction has too many keys for this etcd", why, "Write fewer, or raise --max-txn-ops."
            )
        if refusal.code in (_UNAUTHENTICATED, _PERMISSION_DENIED) or any(one in why for one in _LOCKED_OUT):
            return ServiceError(
                f"the etcd at {self.address} does not let this machine in",
                why,
                "hybrisfs cloud login sets the password.",
            )
        return ServiceError(what, why)

    def _found(self, answer: Transacted, ranges: int) -> list[Found]:
        """What a transaction with so many ranges has found."""
        try:
            found = answer.found(self._root)
        except msgspec.ValidationError as error:
            raise self._unknown(f"the answer is not etcd's: {error}") from error
        if len(found) != ranges:
            why = f"{len(found)} ranges instead of {ranges}"
            raise self._unknown(f"the answer is not etcd's: {why}")
        return found

    def _unknown(self, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"the etcd at {self.address} has not answered", why, "Try again later.")

    def _strange(self, why: str) -> ServiceError:
        return ServiceError(f"the etcd at {self.address} answers in a way that is not etcd's", why)

    def _prefer(self, endpoint: str) -> None:
        with self._lock:
            if self._endpoints[0] != endpoint:
                self._endpoints = [endpoint, *(one for one in self._endpoints if one != endpoint)]

    def _prefer_others(self, endpoint: str) -> None:
        with self._lock:
            self._endpoints = [*(one for one in self._endpoints if one != endpoint), endpoint]

    def _stream(self, asked: dict[str, Any]) -> urllib3.BaseHTTPResponse:
        """The answer of a watch, as it goes on. Raises urllib3's errors, OSError, ServiceError."""
        endpoint = self._endpoints[0]
        token = self._authenticated(endpoint, self._timeout)
        timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=_SILENCE_SECONDS)
        try:
            return self._open(endpoint, "watch", asked, token, timeout)
        except urllib3.exceptions.HTTPError:
            self._prefer_others(endpoint)
            raise


class _Reading:
    """A range at the revision at which its first page was read."""

    def __init__(self, client: EtcdClient, asked: Range) -> None:
        self._client = client
        self._asked = asked
        self._beginning: Found | None = None

    def catch_up(self) -> bool:
        """See `Reading.catch_up`."""
        if self._beginning is None:
            self._beginning = self._client.range(self._asked)
        return True

    def pages(self) -> Iterator[Sequence[KeyValue]]:
        """See `Reading.pages`."""
        return (page.keys for page in self._client.pages(self._asked, self._beginning))


def _first(found: Sequence[Found]) -> list[KeyValue | None]:
    """The key that each range of one has found."""
    return [one.keys[0] if one.keys else None for one in found]


class _Watch:
    """One subscription, with a thread of its own."""

    def __init__(
        self,
        stream: Callable[[dict[str, Any]], urllib3.BaseHTTPResponse],
        key: bytes,
        revision: int,
        changed: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._asked = {
            "create_request": {"key": as_text(key), "start_revision": str(revision), "progress_notify": True}
        }
        self._changed = changed
        self._ended = threading.Event()
        self._response: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._run, name="etcd-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it; *changed* may be called once more. Waits for nobody."""
        self._ended.set()
        response = self._response
        if response is not None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended by itself
                response.shutdown()

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError, HybrisError):
                self._follow()
            if not self._ended.wait(_PAUSE):
                self._changed()  # something may have been missed

    def _follow(self) -> None:
        with contextlib.closing(self._stream(self._asked)) as response:
            self._response = response
            rest = b""
            # The gateway sends one JSON object per line. A line may come in several chunks.
            for chunk in response.stream(1 << 16, decode_content=False):
                if self._ended.is_set():
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _MOST_EVENT:
                    raise ValueError("a line of the watch is too long")
                for line in lines:
                    told = msgspec.json.decode(line, type=WatchLine).result
                    if told.events:
                        self._changed()
                    if told.canceled:
                        return


def _refusal(answer: bytes) -> Refusal:
    try:
        return msgspec.json.decode(answer, type=Refusal)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return Refusal()


def _reason(error: Exception) -> str:
    return str(error).partition(": ")[2] or str(error) or type(error).__name__
