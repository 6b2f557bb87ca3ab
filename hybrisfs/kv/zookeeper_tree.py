"""Where the keys of a volume are in a ZooKeeper.

`hybrisfs.kv.service_metadata` has the table of keys. Each is a znode whose content is the key's value, below
``/PREFIX/hybrisfs/VOLUME``, with PREFIX from the URL and VOLUME the id of the volume in hex:

=====================  ==================================================================================
znode                  key
=====================  ==================================================================================
/s, /n                 s, n
/c/NAME, /l/NAME       c/NAME, l/NAME
/b/DEVICE/NAME         b/DEVICE/NAME, likewise with u, x, g and f
/k/ID/BUCKET/NAME      k/ID/NAME. BUCKET: the first byte of the BLAKE2b hash of the key's name, 2 hex digits.
                       Each transaction that changes what is in a bucket also sets it
/t/ID                  none: the container was dropped, and its entries are being removed
/y                     none: set before every read
=====================  ==================================================================================

NAME is the rest of the key with ``%XX`` for all bytes but letters, digits, ``-`` and ``_``. Znodes with other
names are nobody's. l/DEVICE is ephemeral. Where the URL names a user, only that one may touch the znodes of
the volume; others may look at those above it, and make some beside it.

The **revision** of a key is the version of its znode, from 1 on. It begins again when a znode is made again,
which only those of containers are: there it also has, times 2**32, the version of /c, which is set whenever a
container gets a name or loses one.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

__all__ = ["CONTAINERS", "DROPPED", "ENTRIES", "Tree"]

log = logging.getLogger(__name__)

CONTAINERS: Final = b"c"
ENTRIES: Final = b"k"
DROPPED: Final = b"t"
_GROUPED: Final = (ENTRIES, b"b", b"u", b"x", b"g", b"f")
_KINDS: Final = (CONTAINERS, b"l", DROPPED, *_GROUPED)
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_GROUP: Final = re.compile(r"[0-9a-f]{16,64}")
_BUCKET: Final = re.compile(r"[0-9a-f]{2}")


class Tree:
    """The paths of keys."""

    def __init__(self, root: str) -> None:
        """*root* is the path below which all is; empty for the root of ZooKeeper."""
        self.root: Final = root
        self.dummy: Final = f"{root}/y"

    def above(self) -> Iterator[str]:
        """The paths of the znodes from the root of ZooKeeper to that of the volume, without both."""
        parts = self.root.split("/")
        for end in range(2, len(parts)):
            yield "/".join(parts[:end])

    def frame(self) -> list[str]:
        """The paths of what is below the root of the volume whatever is stored."""
        return [*(f"{self.root}/{kind.decode()}" for kind in _KINDS), self.dummy]

    def kind(self, kind: bytes, group: bytes = b"") -> str:
        """The path below which the keys of a kind are, or of a group of them."""
        below = f"/{group.decode()}" if group else ""
        return f"{self.root}/{kind.decode()}{below}"

    def path(self, key: bytes) -> str:
        """The path of a key."""
        kind, _, rest = key.partition(b"/")
        if kind in _GROUPED:
            group, _, name = rest.partition(b"/")
            parent = self.bucket(key) if kind == ENTRIES else self.kind(kind, group)
            return f"{parent}/{_quoted(name)}"
        return f"{self.kind(kind)}/{_quoted(rest)}" if rest else self.kind(kind)

    def bucket(self, entry: bytes) -> str:
        """The path of the bucket of an entry."""
        _, group, name = entry.split(b"/", 2)
        return f"{self.kind(ENTRIES, group)}/{hashlib.blake2b(name).hexdigest()[:2]}"

    def parents(self, key: bytes) -> list[str]:
        """The paths of the znodes above a key that are made with the first key below them."""
        kind, _, rest = key.partition(b"/")
        if kind not in _GROUPED:
            return []
        group = self.kind(kind, rest.partition(b"/")[0])
        return [group, self.bucket(key)] if kind == ENTRIES else [group]

    def groups(self, names: Sequence[str]) -> list[bytes]:
        """The groups of a kind whose znode has these children."""
        return sorted(name.encode() for name in names if _is(name, _GROUP))

    def buckets(self, names: Sequence[str]) -> list[str]:
        """The buckets of a container whose znode has these children."""
        return sorted(name for name in names if _is(name, _BUCKET))

    def keys(self, prefix: bytes, names: Sequence[str]) -> list[bytes]:
        """The keys, which begin with *prefix*, of the children with these names."""
        return [prefix + unquote_to_bytes(name) for name in names if _is(name, _NAME)]


def _quoted(name: bytes) -> str:
    return quote_from_bytes(name, safe="").replace(".", "%2E").replace("~", "%7E")


def _is(name: str, pattern: re.Pattern[str]) -> bool:
    is_ours = pattern.fullmatch(name) is not None and (
        pattern is not _NAME or _quoted(unquote_to_bytes(name)) == name
    )
    if not is_ours:
        log.warning("the znode %r is none of the metadata's", name[:200])
    return is_ours
