"""The session of this process with a ZooKeeper (3.5 or newer), over the library kazoo.

**Reads are linearizable** by the dummy write of Hybris 4.1. A server answers from what it has, which may be
old. ``sync`` has it catch up with its leader, but a leader that was deposed and does not know yet answers
that, too. So a znode is set before every read, which a quorum has to agree to, and the read follows it in the
same session: servers carry out what a session asks for in order, and refuse one that has seen more than they
have. The write and the read are under way together, so this costs no round trip more. When the session has
ended in between, both are repeated.

**Unknown outcomes**: when the connection breaks, or nobody answers in time, a transaction that was sent may
have taken place, or still may. One is only sent while there is a connection, so that none waits here for
long.

kazoo has three threads, which end with the session. It makes the connection again by itself, to another
server if there are several, and a new session when the old one has expired.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

from hybrisfs.environment import Environment
from hybrisfs.kv.service import OutcomeUnknownError, ServiceError
from hybrisfs.kv.service_url import Access, ServiceUrl
from hybrisfs.kv.zookeeper_tree import Tree

__all__ = ["Session", "Watch"]

log = logging.getLogger(__name__)

_SESSION_SECONDS: Final = 10.0  # that this process may be silent; servers may allow less
_CONNECT_SECONDS: Final = 3.0
_MOST_ANSWER: Final = 64 << 20  # bytes
_CLOSE_SECONDS: Final = 2.0
_PAUSE: Final = 0.1
_MOST_PAUSE: Final = 1.0
_UNANSWERED: Final = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)

T = TypeVar("T")


class Session:
    """Thread-safe. Every call ends within about *timeout* seconds of silence, whatever the servers do."""

    def __init__(
        self, url: ServiceUrl, access: Access, tree: Tree, timeout: float, environment: Environment
    ) -> None:
        """Asks nothing yet."""
        self.address: Final = ", ".join(url.hosts)
        self._tree = tree
        self._timeout = timeout
        self._environment = environment
        self._lock = threading.Lock()
        self._closed = False
        self._live = threading.Event()
        self._socket: socket.socket | None = None
        self._trouble = _LastWarning()
        logger = logging.Logger("kazoo", logging.WARNING)
        logger.addHandler(self._trouble)
        self._handler = SequentialThreadingHandler()
        self._dial = self._handler.create_connection
        self._handler.create_connection = self._connected_socket
        self._begin = self._handler.spawn
        self._handler.spawn = self._begun
        self._shared_acl = self._acl = OPEN_ACL_UNSAFE
        login = []
        if url.user is not None:
            login.append(("digest", f"{url.user}:{access.password or ''}"))
            self._acl = CREATOR_ALL_ACL
            self._shared_acl = [make_acl("world", "anyone", read=True, create=True), *CREATOR_ALL_ACL]
        authority = None if access.authority is None else str(access.authority)
        certificate = None if access.certificate is None else str(access.certificate)
        self._client = KazooClient(
            ",".join(url.hosts),
            _SESSION_SECONDS,
            handler=self._handler,
            auth_data=login,
            default_acl=self._acl,
            connection_retry=KazooRetry(max_tries=-1, delay=_PAUSE, max_delay=_MOST_PAUSE),
            logger=logger,
            use_ssl=url.tls,
            check_hostname=url.tls,
            ca=authority,
            certfile=certificate,
            keyfile=certificate,
        )

    def read(self, work: Callable[[Any], T]) -> T:
        """What *work* finds out with the client of kazoo: everything as it was after this call.

        It may be called several times. Raises ServiceError.
        """
        return self._repeatedly(work, has_dummy=True)

    def ask(self, work: Callable[[Any], T]) -> T:
        """The same of what may be a little old."""
        return self._repeatedly(work, has_dummy=False)

    def _repeatedly(self, work: Callable[[Any], T], *, has_dummy: bool) -> T:
        deadline = self._environment.monotonic() + self._timeout
        while True:
            session = self.connect(deadline)
            dummy = self._client.set_async(self._tree.dummy, b"") if has_dummy else None
            try:
                found = work(self._client)
                if dummy is not None:
                    self.answer(dummy)
                if self._number() == session:
                    return found
            except NoNodeError:  # of the dummy: nobody has used the volume here yet
                self._prepare(deadline)
            except _UNANSWERED as error:
                if self._environment.monotonic() >= deadline:
                    raise self._silent(error) from error
                self._environment.sleep(_PAUSE)
            except KazooException as error:
                raise self.refused(error) from error

    def answer(self, asked: Any, timeout: float | None = None) -> Any:
        """The answer of kazoo's to what *asked* stands for. Raises its errors."""
        try:
            return asked.get(timeout=self._timeout if timeout is None else timeout)
        except (KazooException, KazooTimeoutError):
            raise
        except Exception as error:  # what kazoo makes of an answer that is not ZooKeeper's
            raise ConnectionLoss(f"it answers in a way that is not ZooKeeper's: {error}") from error

    def commit(self, fill: Callable[[Any], None], deadline: float) -> list[Any]:
        """Carry out the transaction that *fill* fills; what has become of each operation.

        Raises OutcomeUnknownError, and ServiceError.
        """
        self.connect(deadline)
        transaction = self._client.transaction()
        fill(transaction)
        asked = transaction.commit_async()
        try:
            results = self.answer(asked, max(deadline - self._environment.monotonic(), 0.0))
        except _UNANSWERED as error:
            silent = self._silent(error)
            raise OutcomeUnknownError(silent.what, silent.why, silent.advice) from error
        except KazooException as error:
            raise self.refused(error) from error
        return list(results)

    def connect(self, deadline: float) -> int:
        """Wait until there is a session; its number. Raises ServiceError."""
        with self._lock:
            if self._closed:
                raise ServiceError(f"the connection to the ZooKeeper at {self.address} is closed")
            routine = self._client._connection._connection_routine  # kazoo does not tell whether it has ended
            if routine is None or not routine.is_alive():
                self._live = self._client.start_async()
            live = self._live
        while True:
            left = deadline - self._environment.monotonic()
            live.wait(max(left, 0.0))
            number = self._number()
            if number is not None:
                return number
            if left <= 0:
                raise self._silent(None)

    @property
    def is_connected(self) -> bool:
        """Whether there is a session, and a connection."""
        return self._number() is not None

    def close(self) -> None:
        """End the session, and wait for kazoo's threads. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        ending = threading.Thread(target=self._end, name="zookeeper-end", daemon=True)
        ending.start()
        ending.join(_CLOSE_SECONDS)
        if ending.is_alive() and self._socket is not None:
            with suppress(OSError):  # it has ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)  # nobody answers any more
            ending.join(_CLOSE_SECONDS)

    def _end(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except KazooException as error:
            log.info("the session with the ZooKeeper at %s ends by itself: %s", self.address, error)

    # -- how -------------------------------------------------------------------------------------

    def _number(self) -> int | None:
        found = self._client.client_id
        return None if found is None else int(found[0])

    def _connected_socket(self, *given: Any, **named: Any) -> Any:
        """As kazoo makes one, but with less patience."""
        named["timeout"] = min(named["timeout"], _CONNECT_SECONDS)
        self._socket = self._dial(*given, **named)
        return _Bounded(self._socket)

    def _begun(self, routine: Callable[[], object]) -> Any:
        """As kazoo begins a thread. One ends when it reads what is not ZooKeeper's, or when an answer is
        missing, as happens when a session is ended elsewhere; the next request begins another."""

        def guarded() -> None:
            try:
                routine()
            except Exception as error:  # noqa: BLE001 - whatever a server sends ends the connection only
                log.info("the connection to the ZooKeeper at %s is made again: %s", self.address, error)

        return self._begin(guarded)

    def _prepare(self, deadline: float) -> None:
        """Make the znodes that are there whatever is stored. Raises ServiceError."""
        self.connect(deadline)
        above = [(path, self._shared_acl) for path in self._tree.above()]
        for path, acl in (*above, *((path, self._acl) for path in (self._tree.root, *self._tree.frame()))):
            try:
                self.answer(self._client.create_async(path, b"", acl))
            except NodeExistsError:
                continue
            except _UNANSWERED:
                return  # it is tried again
            except KazooException as error:
                raise self.refused(error) from error

    def _silent(self, error: Exception | None) -> ServiceError:
        why = self._trouble.last or (str(error) or type(error).__name__ if error is not None else "")
        return ServiceError(
            f"the ZooKeeper at {self.address} has not answered",
            why.removeprefix("Connection dropped: ").removeprefix("socket connection error: "),
            "More than half of its servers must run. Try again later.",
        )

    def refused(self, error: Exception) -> ServiceError:
        """That ZooKeeper has refused something."""
        if isinstance(error, NoAuthError | AuthFailedError):
            return ServiceError(
                f"the ZooKeeper at {self.address} does not let this machine in",
                "the password is another one, or its URL names another user",
                "hybrisfs cloud login sets the password.",
            )
        return ServiceError(
            f"the ZooKeeper at {self.address} refused a request", f"{type(error).__name__} {error}".strip()
        )


class Watch:
    """One subscription, with a thread of its own."""

    def __init__(
        self, wait_for_change: Callable[[Callable[[object], None]], None], changed: Callable[[], None]
    ) -> None:
        self._wait_for_change = wait_for_change
        self._changed = changed
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zookeeper-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it; *changed* may be called once more. Waits for nobody."""
        self._ended.set()
        self._woken.set()

    def _wake(self, _event: object) -> None:
        self._woken.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._woken.clear()
            try:
                self._wait_for_change(self._wake)
            except ServiceError as error:
                log.debug("a key cannot be watched now: %s", error)
                self._ended.wait(_PAUSE)
                self._woken.set()
            if not self._ended.is_set():
                self._changed()  # it may have changed before it was watched
                self._woken.wait()


class _LastWarning(logging.Handler):
    """What kazoo has last complained of."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith("Transition to"):  # that follows the reason
            self.last = record.getMessage()


class _Bounded:
    """A socket of which kazoo takes no answer that is too long: it asks for all of one at once."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def recv(self, size: int) -> bytes:
        if size > _MOST_ANSWER:
            raise OSError(errno.EMSGSIZE, "an answer is too long")
        return self._inner.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
