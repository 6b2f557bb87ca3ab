"""What versions are called in the folder of a file."""

from __future__ import annotations

from hybrisfs.registers.tree import Attr
from hybrisfs.versions.browser import VersionsByPath
from hybrisfs.versions.tree import VersionNode
from tests.versions.support import Clock, UsualRetention

FOLDER = VersionNode((b"",), Attr(0o40555, 0, 0, 0, 0), None, 1)


def test_versions_of_one_second_are_numbered(clock: Clock) -> None:
    fleet = clock.fleet(1)
    device = fleet[0]
    device.mkdir("a")
    for number in range(3):
        device.write("a/notes.txt", b"%d" % number)
        device.sign()
        clock.tick(0.5)
    device.rig.commit()
    source = VersionsByPath((b"a", b"notes.txt"), UsualRetention(), device.rig.environment)
    with device.rig.db.snapshot() as db:
        found = list(source.children(db, FOLDER))
    assert [one.name for one in found] == [
        b"2027-01-15T08:00:00Z notes.txt",
        b"2027-01-15T08:00:00Z (2) notes.txt",
        b"2027-01-15T08:00:01Z notes.txt",
    ]
    assert len({one.number for one in found}) == 3
    fleet.discard()
