"""What a service does for the metadata of a volume's key-value store: a few calls, whatever the service is.

====================  =======================================================================================
`etcd_client`         etcd
`zookeeper_client`    ZooKeeper
`sealed_names`        over one of these, which then sees no names
====================  =======================================================================================

`service_metadata`, `service_writes` and `service_containers` make a metadata store of these calls. They have
the table of keys, and the argument that nothing is deleted that a key names. It takes of a service no more
than is said here.

A key has a *revision*, a number that each change of it alters, and that never comes back while the key can be
compared: `Compare`. 0 stands for a key that there is not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError

__all__ = [
    "Compare",
    "KeyValue",
    "MetadataService",
    "Outcome",
    "OutcomeUnknownError",
    "Put",
    "Reading",
    "Remove",
    "ServiceError",
    "after_prefix",
]

_PAUSE: Final = 0.1  # seconds, when there was no answer
_SETTLE_SECONDS: Final = 30.0


class ServiceError(HybrisError):
    """The service cannot be asked, or has refused; nothing was changed."""


class OutcomeUnknownError(ServiceError):
    """No answer has come: the transaction may have taken place, or may still do so."""


class KeyValue(NamedTuple):
    """A key. `revision` is that of its last change."""

    key: bytes
    value: bytes
    revision: int
    trouble: HybrisError | None = None
    """Why this machine cannot read it. Then the value is empty, and in lists the name may be another one."""


class Compare(Struct, frozen=True):
    """That the last change of a key has this revision; 0: there is no such key; None: there is one."""

    key: bytes
    revision: int | None


class Put(Struct, frozen=True):
    """Set a key."""

    key: bytes
    value: bytes


class Remove(Struct, frozen=True):
    """Remove the keys from *first* up to, and without, *end*; None: *first* alone.

    Of entries there are two ranges: one, or all of a container that nobody can use any more.
    """

    first: bytes
    end: bytes | None = None


class Outcome(NamedTuple):
    """What became of a transaction: whether its comparisons held; if they did the revisions of the entries
    that it put, else what was there instead."""

    succeeded: bool
    revisions: Mapping[bytes, int]
    found: Sequence[KeyValue | None]


class Reading(Protocol):
    """Keys that are read as of one moment."""

    def catch_up(self) -> bool:
        """Read what has changed since the last call. Whether all that was read is of one moment now, which is
        within this call. Raises ServiceError."""

    def pages(self) -> Iterator[Sequence[KeyValue]]:
        """All of it in order, as of that moment. Raises ServiceError."""


class MetadataService(ABC):
    """Thread-safe. Every call ends within some seconds, whatever the servers do.

    Keys are those of one volume, which see no others. A key is KIND, KIND/NAME or KIND/GROUP/NAME.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    @abstractmethod
    def get(self, *keys: bytes) -> Sequence[KeyValue | None]:
        """The keys, None for those that there are not: each as of a moment of this call, none before the
        moment of the one before it. Linearizable. Raises ServiceError."""

    @abstractmethod
    def scan(self, first: bytes, end: bytes, *, keys_only: bool = False) -> Iterator[KeyValue]:
        """The keys from *first* up to, and without, *end*; without values and revisions if they are not
        wanted. Each is as of a moment after this call. Raises ServiceError."""

    @abstractmethod
    def groups(self, kind: bytes) -> Sequence[bytes]:
        """The groups in which there may be keys of a kind. Raises ServiceError."""

    @abstractmethod
    def reading(self, first: bytes, end: bytes, size: int) -> Reading:
        """Read entries of one container in pages of *size* keys, see `scan`. Asks nothing yet."""

    @abstractmethod
    def transact(
        self, compare: Sequence[Compare], then: Sequence[Put | Remove], otherwise: Sequence[bytes] = ()
    ) -> Outcome:
        """If all comparisons hold, make all changes, at one moment; else look, as `get` does.

        Raises OutcomeUnknownError when there was no answer in time, ServiceError when it was refused.
        """

    @abstractmethod
    def announce(self, key: bytes, seconds: int) -> None:
        """See to it that a key is there until this process has been silent for about so long. To be called
        more often than that. Raises ServiceError."""

    @abstractmethod
    def withdraw(self) -> None:
        """Remove the key that was announced. Raises ServiceError."""

    @abstractmethod
    def watch(self, key: bytes, revision: int, changed: Callable[[], None]) -> AbstractContextManager[object]:
        """Have *changed* called for changes of a key after this *revision*, until the end of the context.

        It is called also when something may have been missed: look again.
        """

    @abstractmethod
    def check(self) -> None:
        """Raises ServiceError when the service does not answer, or does not let this machine in."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections. Idempotent."""

    # -- what follows from these -----------------------------------------------------------------

    def settle(self, compare: Sequence[Compare], then: Sequence[Put | Remove], key: bytes) -> KeyValue | None:
        """Repeat a transaction until there is an answer: None when it succeeded, or what *key* is instead.

        Then it may have succeeded before: the caller looks whether *key* is as it wants it. Raises
        ServiceError.
        """
        deadline = self._environment.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                outcome = self.transact(compare, then, [key])
            except OutcomeUnknownError:
                if self._environment.monotonic() >= deadline:
                    raise
                self._environment.sleep(_PAUSE)
            else:
                return None if outcome.succeeded else outcome.found[0]

    def change(self, then: Sequence[Put | Remove]) -> None:
        """Make changes that it does not harm to make twice. Raises ServiceError."""
        if then:
            self.settle([], then, then[0].key if isinstance(then[0], Put) else then[0].first)


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin with *prefix*, which has a byte that is not 0xff."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))
