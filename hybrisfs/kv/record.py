r"""The metadata of one key, as the metadata store keeps it (Hybris 3.1).

    record
    1       format (2) in the high four bits, kind in the low four: 0 tombstone, 1 copies, 2 erasure coded;
            4 is added to the latter two when the value was rewritten without having changed, 8 to each when
            it was written under a condition
    varint  sn                                   \ the timestamp
    varint  write: the number of the write       /
    varint  when it was written: milliseconds since the epoch, by the clock of the machine that wrote it
    a tombstone ends here
    varint  the number that the objects were rewritten under, less `write`; kinds with 4 only
    varint  size of the value in bytes
    varint  sealed size less the size of the value; compression makes it negative, so zigzag-encoded
    varint  k, erasure coded only
    varint  n: the number of shares
    varint  n times: the number of the cloud that holds share i; of copies any order will do
    16      the checksum of the sealed value, of copies; n times, of each share, erasure coded
    blob    attributes: what else the writer says of the value

Format 1 has neither the time nor attributes nor conditions. It is read, and not written any more.

Timestamps order all writes to a key: by `sn`, which grows with every write that knows of the one before,
then by `write`, which is different for every write of this store and takes the place of the client id.
A put that finds a higher timestamp has been overtaken: it took place just before the write that it finds.
When that one was made under a condition, which would not have held then, the put follows it instead.
What moves to other clouds keeps its timestamp, so that a put or delete that began before wins over the move.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS
from hybrisfs.errors import UsageError
from hybrisfs.registers.entries import MAX_ATTRIBUTES, MAX_CONTAINER
from sync.codec import DecodeError, Reader, Writer
from sync.errors import NewerFormatError

__all__ = [
    "ABSENT",
    "CHECKSUM_SIZE",
    "MAX_KEY",
    "MAX_VALUE",
    "PRESENT",
    "TOMBSTONES",
    "Condition",
    "Current",
    "KeyMetadata",
    "Place",
    "RecentEntries",
    "Timestamp",
    "arriving",
    "check_container",
    "container_of",
    "encode_key",
    "is_leaving",
    "is_usable",
    "leaving",
    "spell",
]

MAX_VALUE: Final = 64 << 20  # bytes
CHECKSUM_SIZE: Final = 16

_FORMAT: Final = 2
_TOMBSTONE: Final = 0
_COPIES: Final = 1
_ERASURE: Final = 2
_MOVED: Final = 0x04  # added to either
_CONDITIONAL: Final = 0x08  # added to any
TOMBSTONES: Final = (b"\x10", b"\x20", b"\x28")
"""The first byte of the record of a deleted key."""
_MAX_SN: Final = (1 << 63) - 1
_MAX_OVERHEAD: Final = 64  # bytes that sealing adds at most
_MAX_CLOUD: Final = 1 << 16
_TAG: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class Timestamp(NamedTuple):
    """When a value was written, in the order of all writes to its key.

    `sn` is the value's version: the first has 1, and every write that takes place, a deletion too, adds 1.
    """

    sn: int
    write: int

    @property
    def tag(self) -> str:
        """What people and programs call this very value by; no other value of the store has this tag."""
        return f"{self.sn}-{self.write}"

    @staticmethod
    def from_tag(tag: str) -> Timestamp:
        """Raises UsageError."""
        found = _TAG.fullmatch(tag)
        if found is None:
            raise UsageError(f"{tag[:80]!r} is not a tag", "a tag is what kv put and kv list --json show")
        return Timestamp(int(found[1]), int(found[2]))


class KeyMetadata(NamedTuple):
    """What is known of a key: where its value is and how to recognise it, or that it was deleted.

    `placement[i]` is the cloud that holds share i. With k = 1 all shares are equal and have one checksum. A
    tombstone has no placement. `moved` is the number under which the objects were rewritten; 0 when that
    never happened.
    """

    sn: int
    write: int
    size: int = 0
    sealed: int = 0
    k: int = 1
    placement: tuple[int, ...] = ()
    checksums: tuple[bytes, ...] = ()
    moved: int = 0
    conditional: bool = False
    written: int = 0
    attributes: bytes = b""

    @property
    def objects(self) -> int:
        """The number that the objects on the clouds are named and sealed by."""
        return self.moved or self.write

    @property
    def timestamp(self) -> Timestamp:
        return Timestamp(self.sn, self.write)

    @property
    def live(self) -> bool:
        """Whether there is a value."""
        return bool(self.placement)

    @property
    def names(self) -> int:
        """How many object names the shares have: copies have one, erasure-coded shares one each."""
        return 1 if self.k == 1 else len(self.placement)

    def newer_than(self, other: KeyMetadata | None) -> bool:
        """Whether this has the higher timestamp."""
        return other is None or self.timestamp > other.timestamp

    def after(self, other: KeyMetadata | None) -> KeyMetadata | None:
        """This entry as it takes the place of *other*; None when that has overtaken it.

        This is Hybris's conditional update. An entry with `sn` 0 follows whatever is there.
        """
        if self.sn and not self.newer_than(other) and not (other and other.conditional):
            return None
        return self._replace(sn=max(self.sn, (0 if other is None else other.sn) + 1))

    def under(self, condition: Condition | None) -> KeyMetadata:
        """This entry as it was written under a condition, None for none."""
        # Any value would have done: then it does not matter which one another write had put there before.
        conditional = condition is not None and condition != PRESENT
        return self if conditional == self.conditional else self._replace(conditional=conditional)

    def encode(self) -> bytes:
        """The record."""
        kind = (_COPIES if self.k == 1 else _ERASURE) if self.placement else _TOMBSTONE
        kind |= (_MOVED if self.moved else 0) | (_CONDITIONAL if self.conditional else 0)
        out = Writer().u8(_FORMAT << 4 | kind).varint(self.sn).varint(self.write).varint(self.written)
        if not self.placement:
            return out.getvalue()
        difference = self.sealed - self.size
        if self.moved:
            out.varint(self.moved - self.write)
        out.varint(self.size).varint(difference * 2 if difference >= 0 else -difference * 2 - 1)
        if self.k > 1:
            out.varint(self.k)
        out.varint(len(self.placement))
        for cloud in self.placement:
            out.varint(cloud)
        return out.raw(b"".join(self.checksums)).blob(self.attributes).getvalue()

    @staticmethod
    def decode(record: bytes) -> KeyMetadata:
        """Raises DecodeError for anything but a record, and NewerFormatError."""
        reader = Reader(record)
        tag = reader.u8()
        version, kind = tag >> 4, tag & 0x0F
        if version > _FORMAT:
            raise NewerFormatError(f"metadata record of format {version}: upgrade this program")
        was_moved, conditional = bool(kind & _MOVED), bool(kind & _CONDITIONAL)
        kind &= ~(_MOVED | _CONDITIONAL)
        known = kind in (_COPIES, _ERASURE) or (kind == _TOMBSTONE and not was_moved)
        if not known or version < (2 if conditional else 1):
            raise DecodeError(f"metadata record of unknown kind {tag}")
        sn, write = reader.varint(_MAX_SN), reader.varint(_MAX_SN)
        written = reader.varint(_MAX_SN) if version > 1 else 0
        if kind == _TOMBSTONE:
            reader.end()
            return KeyMetadata(sn, write, conditional=conditional, written=written)
        moved = write + reader.varint(_MAX_SN - write) if was_moved else 0
        size = reader.varint(MAX_VALUE)
        zigzag = reader.varint(2 * (MAX_VALUE + _MAX_OVERHEAD))
        sealed = size + (-(zigzag + 1) // 2 if zigzag & 1 else zigzag // 2)
        k = reader.varint(MAX_FRAGMENTS) if kind == _ERASURE else 1
        n = reader.varint(MAX_FRAGMENTS)
        placement = tuple(reader.varint(_MAX_CLOUD) for _ in range(n))
        checksums = tuple(reader.raw(CHECKSUM_SIZE) for _ in range(1 if kind == _COPIES else n))
        attributes = reader.blob(MAX_ATTRIBUTES) if version > 1 else b""
        reader.end()
        if was_moved and moved == write:
            raise DecodeError("metadata record of a value that was rewritten under its own number")
        if sealed <= 0 or not 0 < k <= n or (k == 1) != (kind == _COPIES) or len(set(placement)) != n:
            raise DecodeError(f"metadata record of a value of {size} bytes, sealed {sealed}, {k} of {n}")
        return KeyMetadata(
            sn, write, size, sealed, k, placement, checksums, moved, conditional, written, attributes
        )


# -- conditions of writes -------------------------------------------------------------------------------


class Current(Protocol):
    """The entry that a key has, as far as conditions look at it."""

    @property
    def live(self) -> bool:
        """Whether there is a value."""

    @property
    def sn(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def timestamp(self) -> Timestamp: ...


class Condition(Struct, frozen=True):
    """What a key must have for a write to take place: a predicate of an update (Pond 2.2).

    Without arguments any value. It is checked in the very step that makes the write's values those of their
    keys.
    """

    version: int | None = None
    """Of the value; 0: there must be none."""
    tag: Timestamp | None = None
    """Of the value."""

    def holds(self, entry: Current | None) -> bool:
        """Whether it holds of a key with this entry."""
        if entry is None or not entry.live:
            return self.version == 0
        return self.version in (None, entry.sn) and self.tag in (None, entry.timestamp)


ABSENT: Final = Condition(version=0)
PRESENT: Final = Condition()


# -- the entries that were read or written last, in memory ----------------------------------------------
# Readers must never go back in time: once a reader has seen a new entry, here or in the database, every
# later reader sees it. So what a transaction changes is taken out before it commits and put in when it has,
# and what is read from the database in between is not kept.


Place: TypeAlias = tuple[int, bytes]
"""The number of a container, and a key in it."""


def spell(containers: Mapping[int, str], place: Place) -> str:
    """A key as people write it: CONTAINER/KEY."""
    return f"{containers.get(place[0], '?')}/{place[1].decode(errors='backslashreplace')}"


_GENERATION: Final = 50_000  # entries, of about half a KiB each


class RecentEntries:
    """Two generations of entries; the older one is dropped when the younger is full. Thread-safe.

    None is kept for a key that there is not.
    """

    def __init__(self) -> None:
        self._young: dict[Place, KeyMetadata | None] = {}
        self._old: dict[Place, KeyMetadata | None] = {}
        self._lock = threading.Lock()
        self._commits = 0  # odd while one is under way

    def find(self, place: Place) -> KeyMetadata | None:
        """The entry. Raises KeyError when it is not here, and must be looked up in the database."""
        try:
            return self._young[place]
        except KeyError:
            pass
        with self._lock:
            if place in self._young:
                return self._young[place]
            entry = self._old.pop(place)
            self._keep(place, entry)
            return entry

    @property
    def moment(self) -> int:
        """To be asked for before the database is read, and given to `learn`."""
        return self._commits

    def learn(self, moment: int, place: Place, entry: KeyMetadata | None) -> None:
        """Keep what the database said, unless it may have changed since."""
        with self._lock:
            if self._commits == moment and not moment & 1 and place not in self._young:
                self._keep(place, entry)

    def begin(self, places: Iterable[Place]) -> None:
        """A transaction that changes these is about to commit."""
        with self._lock:
            self._commits += 1
            for place in places:
                self._young.pop(place, None)
                self._old.pop(place, None)

    def end(self, entries: Mapping[Place, KeyMetadata]) -> None:
        """It has committed, with these; with none when it failed."""
        with self._lock:
            for place, entry in entries.items():
                self._keep(place, entry)
            self._commits += 1

    def _keep(self, place: Place, entry: KeyMetadata | None) -> None:
        if len(self._young) >= _GENERATION:
            self._old, self._young = self._young, {}
        self._young[place] = entry


# -- what containers and keys may be called -------------------------------------------------------------


MAX_KEY: Final = 1024  # bytes
_LEAVING: Final = "/leaving/"


def check_container(name: str) -> str:
    """Return *name*; raise UsageError unless it may name a container."""
    if not 0 < len(_utf8(name)) <= MAX_CONTAINER or "/" in name or not name.isprintable():
        raise UsageError(
            f"{name[:80]!r} cannot name a container",
            f"allowed are 1 to {MAX_CONTAINER} bytes of printable text without a slash",
        )
    return name


def arriving(container: str, source: str = "") -> str:
    """The name of a container that is being copied (`hybrisfs.kv.migrate`), where it goes. *source* is the
    mark of the one that is copied, which no other container has; without it, what such names begin with."""
    return f"{container}/arriving/{source}"


def leaving(container: str, target: str = "") -> str:
    """The name of a container that has been copied, where it was; *target* is the mark of the copy."""
    return f"{container}{_LEAVING}{target}"


def is_leaving(name: str) -> bool:
    """Whether nobody may write to a container of that name."""
    return _LEAVING in name


def container_of(name: str) -> str:
    """The name that programs know a container by, also of one that is on its way."""
    return name.partition("/")[0]


def is_usable(name: str) -> bool:
    """Whether programs can use a container of that name: it is not on its way."""
    return "/" not in name


def encode_key(key: str) -> bytes:
    """The key as it is stored. Raises UsageError when it cannot be one."""
    encoded = _utf8(key)
    if not 0 < len(encoded) <= MAX_KEY or "\0" in key:
        raise UsageError(f"{key[:80]!r} cannot be a key", f"allowed are 1 to {MAX_KEY} bytes of text")
    return encoded


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text[:80]!r} is not valid text") from None
