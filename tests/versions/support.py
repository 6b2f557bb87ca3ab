"""What devices of a fleet know of the past."""

from __future__ import annotations

import stat
from collections.abc import Sequence

from hybrisfs.environment import Environment, Limits
from hybrisfs.versions.contents import VersionReader
from hybrisfs.versions.retention import DEFAULT_RETENTION
from hybrisfs.versions.tree import VersionNode, VersionTree
from tests.merge.fleet import Device, Entry, Fleet

__all__ = ["SECOND", "Clock", "UsualRetention", "past_tree"]

SECOND = 10**9


class UsualRetention:
    """The usual retention, of a volume that lists no moments."""

    rule = DEFAULT_RETENTION

    def rungs(self) -> Sequence[int]:
        return ()


class Clock:
    """The time of all devices, which stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND

    def tick(self, seconds: float = 1.0) -> int:
        """Let time pass; the time before that."""
        before = self.now
        self.now += int(seconds * SECOND)
        return before

    def fleet(self, count: int, *limits: object) -> Fleet:
        """Devices that all read this clock."""
        environment = Environment(time_ns=lambda: self.now, limits=Limits(*limits))
        return Fleet(count, environment=lambda _: environment)


def past_tree(device: Device, moment: int) -> dict[str, Entry]:
    """What the device says that everything was at a moment, by path, like `Device.tree`."""
    device.rig.commit()
    found: dict[str, Entry] = {}
    with device.rig.db.snapshot() as db:
        tree = VersionTree(db, moment)
        waiting: list[tuple[str, VersionNode]] = [("", tree.root())]
        while waiting:
            path, folder = waiting.pop()
            for name, node in tree.children(folder).items():
                where = f"{path}/{name.decode()}".lstrip("/")
                kind = stat.S_IFMT(node.attr.mode)
                reader = VersionReader(device.rig.fs, device.rig.fetcher, node.content)
                content = reader.read(0, reader.size) if stat.S_ISREG(kind) else node.attr.target
                found[where] = Entry(kind, content, node.links)
                if stat.S_ISDIR(kind):
                    waiting.append((where, node))
    return found
