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
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
import urllib3

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.etcd_requests import (
    Authenticated,
    Compare,
    Found,
    KeptAlive,
    KeyValue,
    Lease,
    Outcome,
    Put,
    Range,
    Ranged,
    Refusal,
    Remove,
    Transacted,
    WatchLine,
    as_text,
)

__all__ = ["EtcdClient", "EtcdError", "EtcdSettings", "OutcomeUnknownError"]

_MOST_ANSWER: Final = 64 << 20  # bytes
_MOST_EVENT: Final = 16 << 20  # bytes of one line of a watch
_UNAUTHENTICATED: Final = 16  # codes of gRPC
_PERMISSION_DENIED: Final = 7
_INVALID: Final = 3
_LOCKED_OUT: Final = ("authentication failed", "user name is empty")
_EXHAUSTED: Final = 8
_UNAVAILABLE: Final = (1, 2, 4, 10, 14)  # cancelled, unknown, deadline, aborted, unavailable
_PAUSE: Final = 0.1  # seconds, when no endpoint has answered
_CONNECT_SECONDS: Final = 3.0
_SETTLE_SECONDS: Final = 30.0
_SILENCE_SECONDS: Final = 60.0  # of a watch, after which it begins again
_DEFAULT_PORT: Final = 2379

T = TypeVar("T")


class EtcdError(HybrisError):
    """etcd cannot be asked, or has refused; nothing was changed."""


class OutcomeUnknownError(EtcdError):
    """No answer has come: the transaction may have taken place."""


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Where an etcd is."""

    endpoints: tuple[str, ...]
    """`http://host:port` or `https://host:port`."""
    authority: Path | None = None
    """The file with the certificates that servers are checked against; None: those of the system."""
    certificate: Path | None = None
    """The file with this client's certificate and key."""
    prefix: str = ""
    """What all keys begin with."""
    user: str | None = None

    @staticmethod
    def parse(url: str) -> EtcdSettings:
        """`etcd://[USER@]HOST[:PORT][,HOST[:PORT] ...][/PREFIX]`; `etcds` is the same over TLS. Raises
        UsageError."""
        scheme, _, rest = url.partition("://")
        authority, _, prefix = rest.partition("/")
        user, _, hosts = authority.rpartition("@")
        endpoints = [_endpoint(scheme, host) for host in hosts.split(",") if host]
        wrong = ""
        if scheme not in _SCHEMES:
            wrong = f"{scheme!r} is not etcd or etcds"
        elif not endpoints:
            wrong = "it names no host"
        elif ":" in user:
            wrong = "a password in a URL is seen by others: leave it out, hybrisfs cloud login asks for it"
        elif set(url) & set("?#"):
            wrong = "it takes no options"
        if wrong or None in endpoints:
            example = "etcd://db1:2379,db2:2379,db3:2379/files"
            raise UsageError(f"{url!r} is not the URL of an etcd", wrong, f"For example: {example}")
        return EtcdSettings(
            tuple(one for one in endpoints if one is not None),
            prefix=prefix.strip("/"),
            user=unquote(user) or None,
        )


_SCHEMES: Final = {"etcd": "http", "etcds": "https"}


def _endpoint(scheme: str, host: str) -> str | None:
    """The URL of an endpoint; None when *host* is none."""
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        return None
    if not name or parts.path:
        return None
    return f"{_SCHEMES.get(scheme, 'http')}://{f'[{name}]' if ':' in name else name}:{port}"


# -- the client -----------------------------------------------------------------------------------------


class EtcdClient:
    """Thread-safe. Every call ends within *timeout* seconds, whatever the servers do."""

    def __init__(
        self,
        settings: EtcdSettings,
        password: str | None,
        timeout: float,
        environment: Environment = SYSTEM,
    ) -> None:
        """*password*: of the user that the settings name."""
        self.prefix: Final = settings.prefix
        self._endpoints = list(settings.endpoints)
        self._user = None if settings.user is None else (settings.user, password or "")
        self._timeout = timeout
        self._environment = environment
        self._lock = threading.Lock()
        self._token: str | None = None
        tls: dict[str, Any] = {}
        if settings.authority is not None:
            tls["ca_certs"] = str(settings.authority)
        if settings.certificate is not None:
            tls["cert_file"] = str(settings.certificate)
        self._pool = urllib3.PoolManager(maxsize=64, retries=False, block=False, **tls)

    @property
    def address(self) -> str:
        """What people call it."""
        return ", ".join(self._endpoints)

    def range(self, asked: Range) -> Found:
        """Raises EtcdError."""
        return self._repeatedly("kv/range", asked.request(), Ranged).found()

    def look(self, *asked: Range) -> Sequence[Found]:
        """What several ranges hold at one moment. Raises EtcdError."""
        ranges = {"success": [{"request_range": one.request()} for one in asked]}
        return self._found(self._repeatedly("kv/txn", ranges, Transacted), len(asked))

    def pages(self, asked: Range, size: int, page: Found | None = None) -> Iterator[Found]:
        """All of a range in portions of *size* keys, as of the moment of the first, *page* if that is there
        already. Raises EtcdError."""
        first, revision = asked.first, asked.revision
        while True:
            found = page or self.range(Range(first, asked.end, size, revision, asked.keys_only))
            page = None
            keys = [first, *(one.key for one in found.keys)]
            if any(one > other for one, other in pairwise(keys)) or (found.more and len(keys) < 2):
                raise EtcdError(
                    f"the etcd at {self.address} answers in a way that is not etcd's", "keys out of order"
                )
            yield found
            if not found.more:
                return
            first, revision = found.keys[-1].key + b"\0", revision or found.revision

    def transact(
        self,
        compare: Sequence[Compare],
        then: Sequence[Put | Remove],
        otherwise: Sequence[Range] = (),
    ) -> Outcome:
        """If all comparisons hold, make all changes, else look; all at one moment.

        Raises OutcomeUnknownError when there was no answer in time, EtcdError when it was refused.
        """
        kinds = {Put: "request_put", Remove: "request_delete_range"}
        asked = {
            "compare": [one.request() for one in compare],
            "success": [{kinds[type(one)]: one.request()} for one in then],
            "failure": [{"request_range": one.request()} for one in otherwise],
        }
        deadline = self._environment.monotonic() + self._timeout
        answer = self._ask("kv/txn", asked, Transacted, deadline)
        found = self._found(answer, 0 if answer.succeeded else len(otherwise))
        return Outcome(answer.succeeded, int(answer.header.revision), found)

    def settle(self, compare: Sequence[Compare], then: Sequence[Put | Remove], key: bytes) -> KeyValue | None:
        """Repeat a transaction until there is an answer: None when it succeeded, or what *key* is instead.

        Then it may have succeeded before: the caller looks whether *key* is as it wants it. Raises EtcdError.
        """
        deadline = self._environment.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                outcome = self.transact(compare, then, [Range(key)])
            except OutcomeUnknownError:
                if self._environment.monotonic() >= deadline:
                    raise
                self._environment.sleep(_PAUSE)
            else:
                found = () if outcome.succeeded else outcome.found[0].keys
                return found[0] if found else None

    def change(self, then: Sequence[Put | Remove]) -> None:
        """Make changes that it does not harm to make twice. Raises EtcdError."""
        if then:
            self.settle([], then, then[0].key if isinstance(then[0], Put) else then[0].first)

    def grant_lease(self, seconds: int) -> int:
        """A new lease, which ends when it is not kept alive for so long. Raises EtcdError."""
        return int(self._repeatedly("lease/grant", {"TTL": str(seconds)}, Lease).ID)

    def keep_alive(self, lease: int) -> bool:
        """Whether the lease goes on. Raises EtcdError."""
        answer = self._repeatedly("lease/keepalive", {"ID": str(lease)}, KeptAlive)
        return int(answer.result.TTL) > 0

    def end_lease(self, lease: int) -> None:
        """Raises EtcdError."""
        self._repeatedly("lease/revoke", {"ID": str(lease)}, msgspec.Raw)

    def watch(self, key: bytes, revision: int, changed: Callable[[], None]) -> contextlib.closing[_Watch]:
        """Have *changed* called for changes of a key from *revision* on, until the end of the context.

        It is called also when the watch was broken, and something may have been missed: look again.
        """
        return contextlib.closing(_Watch(self._stream, key, revision, changed))

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    # -- how -------------------------------------------------------------------------------------

    def _repeatedly(self, path: str, asked: dict[str, Any], kind: type[T]) -> T:
        """Ask until there is an answer: what may be asked twice."""
        deadline = self._environment.monotonic() + self._timeout
        while True:
            try:
                return self._ask(path, asked, kind, deadline)
            except OutcomeUnknownError as error:
                if self._environment.monotonic() + _PAUSE >= deadline:
                    raise EtcdError(error.what, error.why, error.advice) from error
                self._environment.sleep(_PAUSE)

    def _ask(self, path: str, asked: dict[str, Any], kind: type[T], deadline: float) -> T:
        """Ask the endpoints in turn, until one has got the request. Raises OutcomeUnknownError when it then
        does not answer, and when there is none."""
        why = "no time was left"
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
        """Raises urllib3's errors, OSError, EtcdError."""
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
            body=json.dumps(asked).encode(),
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

    def _refused(self, endpoint: str, status: int, refusal: Refusal) -> EtcdError:
        what, why = f"the etcd at {self.address} refused a request", refusal.message or refusal.error
        if refusal.code in _UNAVAILABLE or not why:
            self._prefer_others(endpoint)
            return self._unknown(f"{endpoint}: {why or f'HTTP status {status}'}")
        if refusal.code == _EXHAUSTED and "space exceeded" in why:
            return EtcdError(
                f"the etcd at {self.address} is full", why, "Compact and defragment it, or raise its quota."
            )
        if refusal.code == _INVALID and "too many operations" in why:
            return EtcdError(
                "the transaction has too many keys for this etcd", why, "Write fewer, or raise --max-txn-ops."
            )
        if refusal.code in (_UNAUTHENTICATED, _PERMISSION_DENIED) or any(one in why for one in _LOCKED_OUT):
            return EtcdError(
                f"the etcd at {self.address} does not let this machine in",
                why,
                "hybrisfs cloud login sets the password.",
            )
        return EtcdError(what, why)

    def _found(self, answer: Transacted, ranges: int) -> list[Found]:
        """What a transaction with so many ranges has found."""
        found = answer.found()
        if len(found) != ranges:
            why = f"{len(found)} ranges instead of {ranges}"
            raise self._unknown(f"the answer is not etcd's: {why}")
        return found

    def _unknown(self, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"the etcd at {self.address} has not answered", why, "Try again later.")

    def _prefer(self, endpoint: str) -> None:
        with self._lock:
            if self._endpoints[0] != endpoint:
                self._endpoints = [endpoint, *(one for one in self._endpoints if one != endpoint)]

    def _prefer_others(self, endpoint: str) -> None:
        with self._lock:
            self._endpoints = [*(one for one in self._endpoints if one != endpoint), endpoint]

    def _stream(self, asked: dict[str, Any]) -> urllib3.BaseHTTPResponse:
        """The answer of a watch, as it goes on. Raises urllib3's errors, OSError, EtcdError."""
        endpoint = self._endpoints[0]
        token = self._authenticated(endpoint, self._timeout)
        timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=_SILENCE_SECONDS)
        try:
            return self._open(endpoint, "watch", asked, token, timeout)
        except urllib3.exceptions.HTTPError:
            self._prefer_others(endpoint)
            raise


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
