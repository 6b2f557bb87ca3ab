"""What the clouds give back of work that a machine was in the midst of when it was lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.deadline import until
from tests.system.device import Device
from tests.system.everybody import device_for_all
from tests.system.pairing import pair
from tests.system.postgres import Postgres
from tests.system.test_linked import configure


@contextlib.contextmanager
def _folder_for_all() -> Iterator[Path]:
    """At a short path: a socket stands in it."""
    folder = Path(tempfile.mkdtemp(prefix="hybrisfs-lost-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_database_server_keeps_its_books_though_its_machine_is_lost(tmp_path: Path) -> None:
    """Whole transactions are there, after the server's own recovery, as after a power cut."""
    with device_for_all() as lost, Device(tmp_path / "left") as left, _folder_for_all() as folder:
        left.root.mkdir()
        pair(lost, left, "left")
        left.stop()
        configure(left, port=0, addresses=[], discover=False)
        left.mount()
        (lost.mountpoint / "database").mkdir()
        server = Postgres(lost.mountpoint / "database")
        server.make()
        work = server.transfers_without_end()
        try:
            arrived = left.mountpoint / "database" / "data" / "pg_wal"
            until(arrived.is_dir, "the database to arrive")
            states: set[tuple[object, ...]] = set()

            def seen() -> bool:
                names = sorted(arrived.iterdir())
                with contextlib.suppress(FileNotFoundError):
                    states.add(tuple((one.name, one.stat().st_mtime_ns) for one in names))
                return len(states) >= 5

            until(seen, "transactions to arrive", 120)
            lost.kill()
        finally:
            work.kill()
            work.communicate()
            subprocess.run(["umount", "--lazy", lost.mountpoint], check=False, capture_output=True)
            with contextlib.suppress(AssertionError):
                server.stop("immediate")
        shutil.copytree(left.mountpoint / "database" / "data", folder / "data", symlinks=True)
        for path in folder.rglob("*"):
            shutil.chown(path, "nobody", "nogroup")
        (folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        copy = Postgres(folder)
        copy.start()
        try:
            assert copy.transactions() > 0
        finally:
            copy.stop()
        copy.check()
