"""What a metadata store does for a key-value store, whatever holds the metadata (the RMDS of Hybris 3.1).

===================  ========================================================================================
`rmds`               SQLite on this device: nobody else sees the containers
`service_metadata`   an etcd or a ZooKeeper that all devices of the volume use
===================  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from hybrisfs.kv.record import Condition, KeyMetadata, Place
from hybrisfs.kv.repetition import Repetition

__all__ = ["Change", "Found", "Garbage", "Listed", "MetadataStore", "Owed"]


class Garbage(NamedTuple):
    """A write that no key refers to, and how many names its objects have."""

    write: int
    names: int


class Listed(NamedTuple):
    """A key that has a value."""

    key: bytes
    entry: KeyMetadata


class Found(NamedTuple):
    """A key of whatever container; no entry when its record is damaged."""

    place: Place
    entry: KeyMetadata | None


class Change(NamedTuple):
    """A new entry of a key, to be made when it may take the place of the one there: `KeyMetadata.after`."""

    place: Place
    entry: KeyMetadata


class Owed(NamedTuple):
    """A write that a cloud has yet to delete, and how many names its objects have."""

    cloud: int
    write: int
    names: int


class MetadataStore(Protocol):
    """The metadata of all containers and keys of a store. Thread-safe.

    Linearizable: what a method has changed or told, every later call of every client sees. Methods raise
    HybrisError or OSError when the metadata cannot be read or written. Then nothing was changed, unless the
    error says otherwise.
    """

    @property
    def store_id(self) -> bytes:
        """Of the store: part of the names of all objects."""

    @property
    def is_shared(self) -> bool:
        """Whether other devices change it, too."""

    @property
    def failed(self) -> bool:
        """Whether a change has failed of which nobody knows if a crash would show it done."""

    # -- reading

    def read(self, place: Place) -> KeyMetadata | None:
        """The entry of a key, a tombstone included. Raises DamagedError."""

    def container(self, name: str) -> int:
        """The number of a container. Raises NoSuchContainerError."""

    def containers(self) -> list[str]:
        """The names of all containers, sorted, also of those that are being moved (`hybrisfs.kv.migrate`)."""

    def spelled(self, place: Place) -> str:
        """A key as people write it: CONTAINER/KEY."""

    def listing(
        self,
        container: int,
        prefix: bytes,
        after: bytes | None = None,
        most: int = ...,
        *,
        deleted: bool = False,
    ) -> AbstractContextManager[Iterator[list[Listed]]]:
        """The keys with values that begin with *prefix* and come after *after*, in order, in pages of at most
        *most* keys, all of one moment. With *deleted* those that have none any more, too."""

    def values(self) -> Iterator[Found]:
        """All keys that have values, and those with damaged records; a key that changes may be in either
        state."""

    def count(self) -> int:
        """How many keys there are, deleted ones included."""

    def held(self, cloud: int) -> int | None:
        """How many values a cloud should hold; None when that is not known. Of a shared store, as of the last
        time that all were looked at. Does not wait."""

    def problems(self) -> list[str]:
        """What is wrong with the whole, in sentences."""

    def watch(self, place: Place, callback: Callable[[], None]) -> AbstractContextManager[object]:
        """Have *callback*, which must be quick, called after each change of the key until the end."""

    # -- writing

    def new_write(self, above: int = 0) -> int:
        """Begin a write: a number that no other write has, and that is higher than the one of *above*."""

    def intend(self, writes: Sequence[Garbage]) -> None:
        """Objects of these writes are about to go to the clouds: they are garbage until a key names them."""

    def update(
        self, changes: Sequence[Change], conditions: Mapping[Place, Condition] | None = None
    ) -> Sequence[KeyMetadata] | None:
        """The conditional update: make all changes, if all conditions hold and none is older than what is
        there. What they replace is garbage.

        Returns the entries as they are now, None when one was older. Raises ConditionNotMetError and
        NoSuchContainerError.
        """

    def move(self, place: Place, old: KeyMetadata, new: KeyMetadata) -> bool:
        """Have a key name other objects with the same value, if its entry is *old* still; whether it was."""

    def ended(self, writes: Sequence[int]) -> None:
        """These writes have ended, with success or without."""

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""

    def rename_container(self, name: str, new: str) -> None:
        """Give a container another name. Writes to it that are under way fail.

        Raises NoSuchContainerError and ContainerExistsError.
        """

    def discard_container(self, name: str) -> None:
        """Remove a container that nobody uses, if it is there, with all that it holds: its values are
        garbage."""

    # -- what this device is to delete from the clouds

    def gather_garbage(self) -> None:
        """Find out what this device is to delete. May take a while."""

    def garbage(self, after: int, limit: int) -> list[Garbage]:
        """Writes above *after* that no key refers to, those under way included."""

    def forget_garbage(
        self, writes: Sequence[int], owed: Sequence[Owed], again: Sequence[Repetition] = ()
    ) -> None:
        """All clouds have deleted these writes but those that owe it, and will do it again."""

    def owed(self, cloud: int, limit: int) -> list[Owed]:
        """What a cloud has yet to delete that the others have deleted."""

    def forget_owed(self, deletions: Sequence[Owed], again: Sequence[Repetition] = ()) -> None:
        """These clouds have deleted now what they owed, and will do it again."""

    def owing(self) -> Mapping[int, int]:
        """The clouds that have yet to delete something, and since when (seconds since the epoch). Waits for
        nobody."""

    def repetitions(self, cloud: int, start: int, end: int, limit: int) -> list[Repetition]:
        """What a cloud is to delete again, without what is due from *start* to *end*; what was due first is
        first."""

    def first_repetitions(self) -> dict[int, int]:
        """The clouds that are to delete something again, and when the first of it is due (seconds since the
        epoch)."""

    def repeat(self, done: Sequence[int], again: Sequence[Repetition]) -> None:
        """The repetitions with these numbers were carried out; others will be."""

    def close(self) -> None:
        """Finish what was asked for, and let go of everything. Idempotent."""
