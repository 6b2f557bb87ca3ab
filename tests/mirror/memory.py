"""A side of a mirror in memory, with the rules of a real one, and users who change it at any moment."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from hybrisfs.mirror.engine import Listing, LocalOriginal
from hybrisfs.mirror.model import ChangedError, Facts, Glimpse, Kind, Seen, join, name_of, parent_of

__all__ = ["MemoryPlace", "Node"]

_clock = count(1)


@dataclass(eq=False)
class Node:
    """A file, link or directory. *content* is made up by the tests, so that each can be told from others."""

    kind: Kind
    content: bytes = b""
    mode: int = 0o644
    number: int = field(default_factory=lambda: next(_clock))
    version: int = field(default_factory=lambda: next(_clock))

    def changed(self) -> None:
        self.version = next(_clock)


@dataclass
class Reading:
    """What `MemoryPlace.read` yields."""

    node: Node
    seen: Seen
    xattrs: Mapping[bytes, bytes] = field(default_factory=dict)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        yield 0, self.node.content

    def part(self, offset: int, length: int) -> bytes:
        return self.node.content[offset : offset + length]


class MemoryPlace:
    """Names to nodes, by path. A node may have several names."""

    def __init__(self) -> None:
        self.tree: dict[bytes, Node] = {}

    # -- what users do -----------------------------------------------------------------------------

    def exists(self, path: bytes) -> bool:
        return not path or path in self.tree

    def is_directory(self, path: bytes) -> bool:
        return not path or (path in self.tree and self.tree[path].kind is Kind.DIRECTORY)

    def below(self, path: bytes) -> list[bytes]:
        return [one for one in self.tree if one.startswith(path + b"/")]

    def move(self, old: bytes, new: bytes) -> None:
        for path in [old, *self.below(old)]:
            self.tree[new + path[len(old) :]] = self.tree.pop(path)
        self.tree[new].changed()

    def shown(self) -> dict[bytes, tuple[Kind, bytes, int]]:
        return {path: (node.kind, node.content, node.mode) for path, node in self.tree.items()}

    # -- what a mirror does ------------------------------------------------------------------------

    def names(self, path: bytes) -> Listing | None:
        if not self.is_directory(path):
            return None
        found: Listing = {}
        for one, node in self.tree.items():
            if parent_of(one) == path:
                found[name_of(one)] = Glimpse(node.kind, self._identity(node), b"%d" % node.version)
        return found

    def examine(
        self, path: bytes, glimpse: Glimpse, *, content: bool, beside: LocalOriginal | None = None
    ) -> Seen:
        seen = self._seen(path)
        if (seen.identity, seen.stamp) != (glimpse.identity, glimpse.stamp):
            raise ChangedError(path)
        if content or seen.facts.kind is not Kind.FILE:
            return seen
        return Seen(seen.identity, seen.stamp, seen.facts._replace(content=None))

    @contextmanager
    def read(self, path: bytes, seen: Seen) -> Iterator[Reading]:
        now = self._expect(path, seen)
        assert now is not None
        yield Reading(self.tree[path], now)

    def write(self, path: bytes, original: Reading, replaces: Seen | None) -> Seen:
        self._require_parent(path)
        self._expect(path, replaces)
        source = original.node
        before = self.tree.get(path)
        if before is not None and before.kind is Kind.DIRECTORY:
            raise ChangedError(path)
        self.tree[path] = Node(source.kind, source.content, source.mode)
        return self._seen(path)

    def link(self, path: bytes, existing: bytes, seen: Seen, replaces: Seen | None) -> Seen:
        self._require_parent(path)
        self._expect(path, replaces)
        self._expect(existing, seen)
        self.tree[path] = self.tree[existing]
        return self._seen(path)

    def set_attributes(self, path: bytes, original: Reading, target: Seen) -> Seen:
        self._expect(path, target)
        self.tree[path].mode = original.node.mode
        self.tree[path].changed()
        return self._seen(path)

    def remove(self, path: bytes, target: Seen) -> None:
        self._expect(path, target)
        if self.below(path):
            raise ChangedError(path)
        del self.tree[path]

    def rename(self, old: bytes, new: bytes, target: Seen) -> None:
        if self.tree.get(old) is None or self._identity(self.tree[old]) != target.identity:
            raise ChangedError(old)
        self._require_parent(new)
        self._expect(new, None)
        self.move(old, new)

    def set_aside(self, path: bytes, target: Seen) -> bytes:
        node = self.tree.get(path)
        if node is None or self._identity(node) != target.identity:
            raise ChangedError(path)
        for number in count(1):
            name = join(parent_of(path), name_of(path) + b" (conflict %d)" % number)
            if name not in self.tree:
                self.move(path, name)
                return name
        raise AssertionError

    def sync(self) -> None:
        """Memory is as durable as it gets."""

    def _require_parent(self, path: bytes) -> None:
        if not self.is_directory(parent_of(path)):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _expect(self, path: bytes, seen: Seen | None) -> Seen | None:
        if path not in self.tree:
            if seen is not None:
                raise ChangedError(path)
            return None
        now = self._seen(path)
        if seen is None or (now.identity, now.stamp) != (seen.identity, seen.stamp):
            raise ChangedError(path)
        return now

    def _seen(self, path: bytes) -> Seen:
        node = self.tree[path]
        mtime = 0 if node.kind is Kind.DIRECTORY else int.from_bytes(node.content[:6])
        facts = Facts(node.kind, node.mode, mtime, len(node.content), node.content)
        return Seen(self._identity(node), b"%d" % node.version, facts)

    @staticmethod
    def _identity(node: Node) -> bytes:
        return b"%d" % node.number
