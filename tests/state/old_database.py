"""Makes the database that the tests of migration begin with: run by a program of format 5.

    git worktree add /tmp/old ec99714 && cd /tmp/old && python /path/to/old_database.py TARGET

A volume of one device, with files written, overwritten, renamed and removed, and with an update of another
device; its log and registers are as that program left them.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from tests.merge.fleet import Fleet


def make(target: Path) -> None:
    """Write the database, compressed, to *target*."""
    fleet = Fleet(2)
    one, two = fleet[0], fleet[1]
    one.mkdir("folder")
    one.write("folder/file", b"first")
    one.write("gone", b"to be removed")
    fleet.meet()
    two.write("folder/file", b"second")
    one.move("folder", "renamed")
    fleet.meet()
    one.remove("gone")
    one.write("new", b"new")
    fleet.meet()
    one.rig.commit()
    one.rig.db.close()
    for path in (one.rig.directory / "volume.db",):
        target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
