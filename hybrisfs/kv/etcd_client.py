"""A client of etcd (3.5 or newer): ranges, transactions, leases, watches.

It speaks gRPC (`grpc_channel`, `etcd_requests`): etcd's JSON gateway translates each request to that, which
costs the etcd more than the request itself (ADR 039). Every range here is linearizable: a quorum has
confirmed that nothing newer was committed when it was asked for.

Several endpoints are tried one after the other, the one that answered last first. A request that only reads,
or that may be made twice, goes on to the next endpoint until its time is up. Of a transaction without an
answer nobody knows whether it took place: `OutcomeUnknownError` is raised, and the caller finds out.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

from msgspec.structs import replace

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kv.etcd_requests import (
    AUTHENTICATE,
    KEEP_ALIVE,
    LEASE,
    RANGE,
    REVOKE,
    TRANSACTION,
    WATCH,
    Found,
    Range,
    Transacted,
    Watched,
    authentication,
    change_request,
    decode_found,
    decode_lease,
    decode_token,
    lease_request,
    lease_seconds,
    range_request,
    transaction,
    watch_request,
)
from hybrisfs.kv.grpc_calls import BrokenCallError, RefusedCallError
from hybrisfs.kv.grpc_channel import Channel, NotReachedError, Stream
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
from sync.codec import DecodeError

__all__ = ["EtcdClient"]

_PAGE: Final = 1000  # keys
_UNAUTHENTICATED: Final = 16  # codes of gRPC
_PERMISSION_DENIED: Final = 7
_INVALID: Final = 3
_LOCKED_OUT: Final = ("authentication failed", "user name is empty")
_EXHAUSTED: Final = 8
_UNAVAILABLE: Final = (1, 2, 4, 10, 14)  # cancelled, unknown, deadline, aborted, unavailable
_NO_TIME: Final = "no time was left"
_PAUSE: Final = 0.1  # seconds, when no endpoint has answered
_SILENCE_SECONDS: Final = 60.0  # of a watch, after which it begins again

T = TypeVar("T")


class EtcdClient(MetadataService):
    """A `MetadataService`; what has no text here is explained there. Thread-safe.

    Every call ends within *timeout* seconds, whatever the servers do."""

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
        self._endpoints = [*url.hosts]
        self._user = None if url.user is None else (url.user, access.password or "")
        self._timeout = timeout
        self._lock = threading.Lock()
        self._token: str | None = None
        self._lease: int | None = None
        self._channel = Channel(partial(_context, access) if url.tls else None, environment)

    @property
    def address(self) -> str:
        """What people call it."""
        return ", ".join(self._endpoints)

    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        """See `MetadataService.get`. All are of one moment."""
        if len(keys) == 1:
            return _first([self.range(Range(keys[0]))])
        asked = transaction(self._root, (), [range_request(self._root, Range(key)) for key in keys], ())
        return _first(self._found(self._repeatedly(TRANSACTION, asked, Transacted.decode), len(keys)))

    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        """See `MetadataService.scan`. All are of one moment."""
        for page in self.pages(Range(first, end, _PAGE, keys_only=keys_only)):
            yield from page.keys

    def groups(self, kind: bytes) -> Sequence[bytes]:
        found: list[bytes] = []
        prefix = kind + b"/"
        asked = Range(prefix, after_prefix(prefix), 1, keys_only=True)
        while keys := self._in_order(asked, self.range(asked)).keys:
            found.append(keys[0].key[len(prefix) :].partition(b"/")[0])
            asked = replace(asked, first=after_prefix(prefix + found[-1] + b"/"))
        return found

    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        return _Reading(self, Range(first, end, size))

    def range(self, asked: Range) -> Found:
        """Raises ServiceError."""
        answer = self._repeatedly(RANGE, asked.encode(self._root), bytes)
        try:
            return decode_found(answer, self._root)
        except DecodeError as error:
            raise self._strange(str(error)) from error

    def pages(self, asked: Range, page: Found | None = None) -> Iterator[Found]:
        """All of a range in portions of its limit, as of the moment of the first, *page* if that is there
        already. Raises ServiceError."""
        while True:
            found = self._in_order(asked, page or self.range(asked))
            page = None
            yield found
            if not found.more:
                return
            after = found.keys[-1].key + b"\0"
            asked = replace(asked, first=after, revision=asked.revision or found.revision)

    def _in_order(self, asked: Range, found: Found) -> Found:
        """What was found, if who asks for what comes after it gets to an end. Raises ServiceError."""
        keys = [asked.first, *(one.key for one in found.keys)]
        is_beyond = asked.end is not None and keys[-1] >= asked.end
        if is_beyond or any(one > other for one, other in pairwise(keys)) or (found.more and len(keys) < 2):
            raise self._strange("keys out of order")
        return found

    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        changes = [change_request(self._root, one) for one in then]
        looks = [range_request(self._root, Range(key)) for key in otherwise]
        deadline = self._environment.monotonic() + self._timeout
        asked = transaction(self._root, compare, changes, looks)
        answer = self._ask(TRANSACTION, asked, Transacted.decode, deadline)
        if answer.succeeded:
            return Outcome(True, {one.key: answer.revision for one in then if isinstance(one, Put)}, [])
        return Outcome(False, {}, _first(self._found(answer, len(otherwise))))

    def announce(self, key: bytes, seconds: int) -> None:
        """See `MetadataService.announce`: a key with a lease."""
        if self._lease is None or not self._goes_on(self._lease):
            lease = self._repeatedly(LEASE, lease_request(seconds), decode_lease)
            change = change_request(self._root, Put(key, b""), lease)
            self._repeatedly(TRANSACTION, transaction(self._root, (), [change], ()), Transacted.decode)
            self._lease = lease

    def _goes_on(self, lease: int) -> bool:
        return self._repeatedly(KEEP_ALIVE, lease_request(lease), lease_seconds) > 0

    def withdraw(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._repeatedly(REVOKE, lease_request(lease), bytes)

    def watch(self, key: bytes, revision: int, changed: Callable[[], None]) -> contextlib.closing[_Watch]:
        return contextlib.closing(_Watch(self._stream, self._root + key, revision + 1, changed))

    def check(self) -> None:
        self.range(Range(b"hybrisfs"))

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()

    # -- how -------------------------------------------------------------------------------------

    def _repeatedly(self, path: str, asked: bytes, decode: Callable[[bytes], T]) -> T:
        """Ask until there is an answer: what may be asked twice."""
        deadline = self._environment.monotonic() + self._timeout
        trouble: OutcomeUnknownError | None = None
        while True:
            try:
                return self._ask(path, asked, decode, deadline)
            except OutcomeUnknownError as error:
                if trouble is None or error.why != _NO_TIME:
                    trouble = error
                if self._environment.monotonic() + _PAUSE >= deadline:
                    raise ServiceError(trouble.what, trouble.why, trouble.advice) from trouble
                self._environment.sleep(_PAUSE)

    def _ask(self, path: str, asked: bytes, decode: Callable[[bytes], T], deadline: float) -> T:
        """Ask the endpoints in turn, until one has got the request. Raises OutcomeUnknownError when it then
        does not answer, and when there is none."""
        why = _NO_TIME
        for endpoint in list(self._endpoints):
            left = deadline - self._environment.monotonic()
            if left <= 0:
                break
            try:
                answer = self._call(endpoint, path, asked, left)
            except NotReachedError as error:
                why = f"{endpoint} cannot be reached: {error}"
                continue  # it has not got the request
            except (BrokenCallError, OSError) as error:
                self._prefer_others(endpoint)
                raise self._unknown(f"{endpoint} did not answer: {error}") from error
            self._prefer(endpoint)
            try:
                return decode(answer)
            except DecodeError as error:
                raise self._unknown(f"{endpoint} answers in a way that is not etcd's: {error}") from error
        raise self._unknown(why)

    def _call(self, endpoint: str, path: str, asked: bytes, left: float) -> bytes:
        """Raises NotReachedError, BrokenCallError, OSError, ServiceError."""
        for is_second in (False, True):
            metadata = self._metadata(endpoint, left)
            try:
                return self._channel.call(endpoint, path, asked, metadata, left)
            except RefusedCallError as error:
                is_stale = error.code == _UNAUTHENTICATED or "invalid auth token" in str(error)
                if not is_stale or is_second or self._user is None:
                    raise self._refused(endpoint, error) from error
            with self._lock:
                if metadata == [("token", self._token)]:
                    self._token = None
        raise AssertionError

    def _metadata(self, endpoint: str, left: float) -> list[tuple[str, str]]:
        """What shows a server who asks. Raises as `_call`."""
        if self._user is None:
            return []
        with self._lock:
            if self._token is None:
                asked = authentication(*self._user)
                try:
                    answer = self._channel.call(endpoint, AUTHENTICATE, asked, (), left)
                    self._token = decode_token(answer)
                except RefusedCallError as error:
                    raise self._refused(endpoint, error) from error
                except DecodeError as error:
                    raise BrokenCallError(f"no token: {error}") from error
            return [("token", self._token)]

    def _refused(self, endpoint: str, refusal: RefusedCallError) -> ServiceError:
        what, why = f"the etcd at {self.address} refused a request", str(refusal)
        if refusal.code in _UNAVAILABLE or not why:
            self._prefer_others(endpoint)
            return self._unknown(f"{endpoint}: {why or f'gRPC status {refusal.code}'}")
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
        """What a transaction with so many ranges has found. Raises OutcomeUnknownError."""
        try:
            found = answer.found(self._root)
        except DecodeError as error:
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

    def _stream(self, asked: bytes) -> Stream:
        """The answer of a watch, as it goes on. Raises as `_call`."""
        endpoint = self._endpoints[0]
        try:
            metadata = self._metadata(endpoint, self._timeout)
            return self._channel.stream(endpoint, WATCH, asked, metadata, _SILENCE_SECONDS)
        except (NotReachedError, BrokenCallError, OSError):
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
        self, begin: Callable[[bytes], Stream], key: bytes, revision: int, changed: Callable[[], None]
    ) -> None:
        self._begin = begin
        self._asked = watch_request(key, revision)
        self._changed = changed
        self._ended = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="etcd-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it; *changed* may be called once more. Waits for nobody."""
        self._ended.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(
                NotReachedError, RefusedCallError, BrokenCallError, DecodeError, OSError, HybrisError
            ):
                self._follow()
            if not self._ended.wait(_PAUSE):
                self._changed()  # something may have been missed

    def _follow(self) -> None:
        with contextlib.closing(self._begin(self._asked)) as stream:
            self._stream = stream
            if self._ended.is_set():
                return  # too early to be interrupted
            for message in stream.messages():
                told = Watched.decode(message)
                if told.changed:
                    self._changed()
                if told.canceled or self._ended.is_set():
                    return


def _context(access: Access) -> ssl.SSLContext:
    """Raises OSError when a file cannot be read, or has no certificates."""
    context = ssl.create_default_context(cafile=access.authority)
    if access.certificate is not None:
        context.load_cert_chain(access.certificate)
    return context
