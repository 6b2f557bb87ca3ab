"""Another device, as far as it can be had today: it knows a volume by its signed updates alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Content, Place, decode_runs
from hybrisfs.state.database import Database
from sync import SignedUpdate, decode_signed
from tests.tree.rig import DEVICE

__all__ = ["Reader", "RemoteNode", "read_content"]


@dataclass(slots=True)
class RemoteNode:
    """What the registers say of one node."""

    places: dict[bytes, Place] = field(default_factory=dict)  # by register key
    attr: Attr | None = None
    content: Content | None = None

    def names(self) -> set[tuple[bytes, bytes]]:
        return {(place.parent, place.name) for place in self.places.values()}


class Reader:
    """Reads the log of *database* as it grows, checking signatures and the chain."""

    def __init__(self) -> None:
        self.registers: dict[bytes, bytes | None] = {}
        self.nodes: dict[bytes, RemoteNode] = {}
        self.clock = 0
        self._tip = bytes(32)

    def catch_up(self, database: Database) -> list[SignedUpdate]:
        """Apply what is new, in order; the updates applied."""
        rows = database.rows.execute(
            "SELECT bytes FROM log WHERE device = ? AND clock > ? ORDER BY clock",
            (DEVICE.device_id, self.clock),
        ).fetchall()
        updates = [decode_signed(row[0]) for row in rows]
        for update in updates:
            assert update.header.verify(DEVICE.public)
            assert (update.header.prev, update.header.prev_clock) == (self._tip, self.clock)
            self._tip, self.clock = update.hash, update.header.clock
            for key, value in update.writes:
                self._apply(key, value)
        return updates

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self.registers[key] = value
        if key[:1] not in b"pac":
            return
        node = self.nodes.setdefault(key[1:17], RemoteNode())
        if key[:1] == b"p":
            place = None if value is None else Place.decode(value)
            if place is None or place.removed:
                node.places.pop(key, None)
            else:
                node.places[key] = Place(place.parent, place.name)
        elif key[:1] == b"a":
            node.attr = None if value is None else Attr.decode(value)
        else:
            node.content = None if value is None else Content.decode(value)

    def tree(self) -> dict[tuple[bytes, ...], bytes]:
        """The id of the node at each path that can be reached from the root."""
        children: dict[bytes, dict[bytes, bytes]] = {}
        for identity, node in self.nodes.items():
            for place in node.places.values():
                folder = children.setdefault(place.parent, {})
                assert place.name not in folder, f"two nodes are called {place.name!r}"
                folder[place.name] = identity
        found: dict[tuple[bytes, ...], bytes] = {}
        waiting: list[tuple[tuple[bytes, ...], bytes]] = [((), ROOT_ID)]
        while waiting:
            path, folder_id = waiting.pop()
            for name, identity in children.get(folder_id, {}).items():
                found[(*path, name)] = identity
                waiting.append(((*path, name), identity))
        return found


def read_content(content: Content, chunk: Callable[[bytes], bytes]) -> bytes:
    """The bytes of a file, out of chunks by id."""
    runs = content.runs
    if content.depth:
        pages = []
        for page in runs:
            assert page.chunk is not None
            inner = decode_runs(chunk(page.chunk))
            assert sum(run.length for run in inner) == page.length
            pages.extend(inner)
        runs = pages
    parts = []
    for run in runs:
        part = bytes(run.length) if run.chunk is None else chunk(run.chunk)[run.skip : run.reach]
        assert len(part) == run.length
        parts.append(part)
    data = b"".join(parts)
    assert len(data) == content.size
    return data
