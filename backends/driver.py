"""What all drivers share: the record of a kind of cloud, and the checks and errors of every call.

A driver is one module with one class below `Driver` (`BucketStore` and `FolderStore` know more about buckets
and folders), its record in `kind`, and one line in `backends.registry`. Everything else follows from these.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field

from backends.address import Address, parse_address
from backends.body import BodyError, Timing, body_failure
from backends.credentials import NO_CREDENTIALS, Credentials, Secrets
from backends.errors import CorruptError, MissingError, PermanentError, StoreError
from backends.http_errors import HttpFailure, RedirectedError, connection_error
from backends.store import MAX_PAGE, Buffer, Page, check_name, check_prefix

__all__ = ["CloudKind", "Driver", "HttpDriver", "Secret", "as_bytes", "check_range"]

_NOTHING: Final[Mapping[str, str]] = {}
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)  # what senseless answers lead to


class Secret(NamedTuple):
    """One secret of a cloud. What is left out comes from the provider's own chain, but for an endpoint."""

    name: str
    label: str
    hidden: bool = True
    """Whether it must not be seen while a person types it."""
    account: bool = False
    """Whether it tells one account at a provider from another."""


class CloudKind(Struct, frozen=True):
    """All that HybrisFS knows of one kind of cloud."""

    schemes: tuple[str, ...]
    form: str
    """How people write its URL."""
    what: str
    """What it is, in words for people who look for theirs."""
    options: frozenset[str] = frozenset()
    """What its URLs may state after the question mark. An `endpoint` is the URL of the service itself."""
    local_options: frozenset[str] = frozenset()
    """Those of them that name what is on this machine: files, accounts."""
    secrets: tuple[Secret, ...] = ()
    logins: str = ""
    """Who keeps the logins and how a person changes them; "" when we keep its secrets, or there are none."""
    problem: Callable[[Address], str] = lambda address: ""
    """Says what is wrong with an address; "" for a good one."""
    server: Callable[[Address], str | None] = lambda address: None
    """The URL of the web server behind an address without an endpoint; None when there is none."""
    providers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """The names of providers in hybrisfs/prices.json, by how the names of their servers end."""
    keeps_nothing: str = ""
    """Why it never keeps what is deleted; "" when it may, and its driver has `versions`."""

    def parse(self, url: str) -> Address:
        """Take a URL apart. Raises `PermanentError` that shows how one is written."""
        address = parse_address(url, options=self.options, form=self.form)
        problem = self.problem(address)
        if problem:
            raise PermanentError(url, "open", "", problem, f"write {self.form}")
        return address


def check_range(offset: int, length: int) -> None:
    """Raise `ValueError` for a range that begins or ends before the object does."""
    if offset < 0 or length < 0:
        raise ValueError(f"negative range: {offset}+{length}")


def as_bytes(data: Buffer) -> bytes:
    """Return the bytes of a buffer of whatever item size, without a copy where it is `bytes` already."""
    return data if isinstance(data, bytes) else bytes(data)


C = TypeVar("C")


class Driver(ABC, Generic[C]):
    """A `backends.store.Store` that checks what it is called with, and explains what goes wrong.

    A driver fills in the methods that begin with an underscore: `_put` does the work of `put`, and so on.
    Their names, ranges and limits are legal. All but `_initialise` get the `client` that `_calling` lends for
    one call. They may raise `StoreError`, `BodyError`, and all that `_store_error` can explain.
    """

    kind: ClassVar[CloudKind]

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        """Take note of everything; a driver raises `PermanentError` for a malformed URL."""
        self.url = url
        self._credentials = credentials
        self._timing = timing or Timing()

    def initialise(self) -> None:
        with self._translated("initialise", ""):
            self._initialise()

    def put(self, name: str, data: Buffer) -> None:
        check_name(name)
        with self._calling("put", name) as client:
            self._put(client, name, data)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        check_name(name)
        with self._calling("put_if_absent", name) as client:
            return self._put_if_absent(client, name, data)

    def get(self, name: str, *, limit: int) -> bytes:
        check_name(name)
        with self._calling("get", name) as client:
            return self._get(client, name, limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_name(name)
        check_range(offset, length)
        with self._calling("get_range", name) as client:
            data = self._get_range(client, name, offset, length) if length else b""
            enough = len(data) == length if length else self._size(client, name) >= offset
        if not enough:
            raise CorruptError(self.url, "get_range", name, f"ends before byte {offset + length}")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        check_name(name)
        with self._calling("get_if_changed", name) as client:
            return self._get_if_changed(client, name, tag, limit)

    def delete(self, name: str) -> None:
        check_name(name)
        with contextlib.suppress(MissingError), self._calling("delete", name) as client:
            self._delete(client, name)

    def delete_many(self, names: Iterable[str]) -> None:
        self._delete_many(list(dict.fromkeys([check_name(name) for name in names])))

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        check_prefix(prefix)
        if not 1 <= limit <= MAX_PAGE:
            raise ValueError(f"limit must be 1 to {MAX_PAGE}: {limit}")
        with self._calling("list", prefix) as client:
            return self._list(client, prefix, after, limit)

    @abstractmethod
    def close(self) -> None:
        """See `Store`."""

    @contextlib.contextmanager
    def _translated(self, operation: str, name: str) -> Iterator[None]:
        """Turn whatever goes wrong into the `StoreError` that says what to do about it."""
        try:
            yield
        except StoreError:
            raise
        except BodyError as error:
            raise body_failure(self.url, operation, name, error) from error
        except Exception as error:
            failure = self._store_error(operation, name, error)
            if failure is None:
                raise
            raise failure from error

    def _secrets(self) -> Secrets:
        """What opens this cloud. Raises `AuthError`, also for secrets that the kind does not take."""
        secrets = self._credentials.lookup(self.url)
        secrets.require_known(self.url, frozenset(secret.name for secret in self.kind.secrets))
        return secrets

    @abstractmethod
    def _calling(self, operation: str, name: str) -> AbstractContextManager[C]:
        """Lend what a call works with; whatever goes wrong within becomes a `StoreError`."""

    @abstractmethod
    def _store_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        """Return what an error of the service or of its library means; None for a mistake of our own."""

    @abstractmethod
    def _initialise(self) -> None: ...

    @abstractmethod
    def _put(self, client: C, name: str, data: Buffer) -> None: ...

    @abstractmethod
    def _put_if_absent(self, client: C, name: str, data: Buffer) -> bool: ...

    @abstractmethod
    def _get(self, client: C, name: str, limit: int) -> bytes: ...

    @abstractmethod
    def _get_range(self, client: C, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes, at least one, from `offset` on; fewer where the object ends before."""

    @abstractmethod
    def _size(self, client: C, name: str) -> int:
        """Return the size of an object in bytes."""

    @abstractmethod
    def _get_if_changed(
        self, client: C, name: str, tag: str | None, limit: int
    ) -> tuple[bytes, str] | None: ...

    @abstractmethod
    def _delete(self, client: C, name: str) -> None: ...

    def _delete_many(self, names: Sequence[str]) -> None:
        """Where the service has no cheaper request for it, one by one."""
        for name in names:
            self.delete(name)

    @abstractmethod
    def _list(self, client: C, prefix: str, after: str, limit: int) -> Page: ...


class _Closable(Protocol):
    def close(self) -> None: ...


L = TypeVar("L", bound=_Closable)


class HttpDriver(Driver[L]):
    """A driver that speaks HTTP through one client for all threads. The client is made at the first call, for
    it takes secrets and libraries that are slow to load.
    """

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        super().__init__(url, credentials, timing)
        self._address = self.kind.parse(url)
        self._connecting = threading.Lock()
        self._connected: L | None = None

    def close(self) -> None:
        with self._connecting:
            if self._connected is not None:
                self._connected.close()

    def _client(self) -> L:
        """The client. Raises what `_connect` raises, and `StoreError` for secrets that are unknown."""
        with self._connecting:
            if self._connected is None:
                self._connected = self._connect(self._secrets())
            return self._connected

    @contextlib.contextmanager
    def _calling(self, operation: str, name: str) -> Iterator[L]:
        with self._translated(operation, name):
            yield self._client()

    @abstractmethod
    def _connect(self, secrets: Secrets) -> L:
        """Make the client."""

    @contextlib.contextmanager
    def _tolerating(self, *answers: int | str) -> Iterator[None]:
        """Leave the block when the service refuses with one of these HTTP statuses or codes of its own."""
        try:
            yield
        except Exception as error:
            failure = self._failure(error)
            if failure is None or (failure.status not in answers and failure.code not in answers):
                raise

    def _store_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        failure = self._failure(error)
        if failure is not None:
            return self._refusal(operation, name, failure)
        explained = self._library_error(operation, name, error)
        if explained is None and isinstance(error, OSError | RedirectedError):
            return connection_error(self.url, operation, name, error)
        if explained is None and isinstance(error, _MALFORMED):
            return CorruptError(self.url, operation, name, f"an answer without sense: {type(error).__name__}")
        return explained

    @abstractmethod
    def _failure(self, error: Exception) -> HttpFailure | None:
        """Return what the service says when it refuses; None for other errors."""

    @abstractmethod
    def _refusal(self, operation: str, name: str, failure: HttpFailure) -> StoreError:
        """Return what a refusal means."""

    @abstractmethod
    def _library_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        """Return what an error of the library means; None for one that is not an error of its own."""
