"""A PostgreSQL server in a folder, run as nobody, because it refuses to be run by root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["Postgres"]

_USER = "nobody"
_BOOKS = {"abalance": "accounts", "bbalance": "branches", "tbalance": "tellers", "delta": "history"}


class Postgres:
    """A server with its data in *folder*/data, which the user nobody may enter."""

    def __init__(self, folder: Path) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            pytest.skip("PostgreSQL is not installed")
        self._programs = found[-1].parent
        self._folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        shutil.chown(folder, _USER, "nogroup")

    def run(self, program: str, *words: str | Path) -> str:
        """Run one of PostgreSQL's programs to its end."""
        return self._finished(self._begun(program, *words))

    def _begun(self, program: str, *words: str | Path) -> subprocess.Popen[str]:
        account = pwd.getpwnam(_USER)
        return subprocess.Popen(
            [str(self._programs / program), *map(str, words)],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self._folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _finished(self, process: subprocess.Popen[str]) -> str:
        out, error = process.communicate(timeout=150)
        assert process.returncode == 0, f"{process.args!r}: {out}{error}"
        return out

    def make(self) -> None:
        """Lay out the data, with pgbench's tables."""
        self.run(
            "initdb", "-D", self.data, "-U", _USER, "--auth=trust", "--no-instructions", "--data-checksums"
        )
        self.start()
        self.run("pgbench", "-h", self._folder, "-U", _USER, "-i", "-q", "-s", "1", "postgres")

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder} -c shared_buffers=16MB"
        self.run("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "120", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", self.data, "-w", "-t", "120", "-m", mode, "stop")

    def transfers(self, count: int) -> None:
        """Two clients make so many transactions each."""
        self.run("pgbench", "-h", self._folder, "-U", _USER, "-c", "2", "-t", str(count), "postgres")

    def transfers_without_end(self) -> subprocess.Popen[str]:
        """Two clients make transactions until the process is killed, or the server gone."""
        return self._begun("pgbench", "-h", self._folder, "-U", _USER, "-c", "2", "-T", "600", "postgres")

    def transactions(self) -> int:
        """How many transactions there were, all of which must be whole."""
        sums = {self._ask(f"SELECT sum({column}) FROM pgbench_{table}") for column, table in _BOOKS.items()}
        assert len(sums) == 1, f"a transaction is there in part: {sums}"
        return int(self._ask("SELECT count(*) FROM pgbench_history"))

    def check(self) -> None:
        """Verify the checksums of all pages; the server must not run."""
        assert "page verification failed" not in self.log.read_text()
        self.run("pg_checksums", "--check", "-D", self.data)

    def _ask(self, query: str) -> str:
        return self.run("psql", "-h", self._folder, "-d", "postgres", "-U", _USER, "-Atc", query).strip()
