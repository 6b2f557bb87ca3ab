"""The bytes of the journal before the rows that name them, whoever commits."""

from __future__ import annotations

from pathlib import Path

from tests.state.disk import ForgetfulDisk
from tests.tree.rig import Rig


def test_no_commit_leaves_rows_without_their_bytes(tmp_path: Path) -> None:
    """Background work commits to read a snapshot. A power cut right after it took the file's bytes."""
    disk = ForgetfulDisk(tmp_path)
    rig = Rig(tmp_path, environment=disk.environment)
    disk.watch(tmp_path)
    rig.make(b"file", b"content")
    rig.fs.commit(rig.tx)
    rig.db.make_durable()
    after = rig.powerless(disk)
    inode = after.fs.locate(after.tx, [b"file"])
    assert inode is not None
    assert after.read(inode) == b"content"
    after.discard()
