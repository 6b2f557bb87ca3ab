"""A database per device, in a folder of its own: money is moved about, and none is made or lost.

A process of its own keeps one connection open, for SQLite maps a file into memory, and whoever touches such
memory when the daemon is gone dies of SIGBUS.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

from tests.system.chaos.record import Record
from tests.system.chaos.world import World

__all__ = ["Bank", "look_at_bank"]

_MODES = ("DELETE", "TRUNCATE", "PERSIST", "WAL")
_ACCOUNTS = 1500
_EACH = 1000
_STABLE_SECONDS = 0.4  # a kernel learns of changed names one after the other, a moment later
_SIDES = ("", "-wal", "-journal")
_EXIT_GONE, _EXIT_BROKEN = 3, 4

_CLERK = f"""
import os, random, signal, sqlite3, sys, time
path, mode, seed = sys.argv[1:]
choose = random.Random(seed)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
try:
    db = sqlite3.connect(path, isolation_level=None, timeout=20)
    db.execute("PRAGMA journal_mode=" + mode)
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA cache_size=20")
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE account (number INTEGER PRIMARY KEY, sum INTEGER, note TEXT)")
        db.execute("CREATE INDEX by_sum ON account (sum)")
        rows = ((number, "x" * 120) for number in range({_ACCOUNTS}))
        db.executemany("INSERT INTO account VALUES (?, {_EACH}, ?)", rows)
        db.execute("COMMIT")
    damage = db.execute("PRAGMA integrity_check").fetchall()
    total = db.execute("SELECT total(sum) FROM account").fetchone()[0]
    if damage != [("ok",)] or total != {_ACCOUNTS * _EACH}:
        print(total, damage[:3], flush=True)
        os._exit({_EXIT_BROKEN})
    while True:
        long = choose.random() < 0.2
        db.execute("BEGIN IMMEDIATE")
        for _ in range(choose.randrange(20, 60) if long else 3):
            amount = choose.randrange(1, 100)
            for sign in (-1, 1):
                db.execute("UPDATE account SET sum = sum + ? WHERE number = ?",
                           (sign * amount, choose.randrange({_ACCOUNTS})))
            if long:
                time.sleep(0.03)
        db.execute("COMMIT")
        print("committed", flush=True)
        time.sleep(choose.expovariate(4))
except sqlite3.DatabaseError as error:
    print(error, flush=True)
    gone = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    os._exit({_EXIT_GONE} if error.sqlite_errorcode & 0xFF in gone else {_EXIT_BROKEN})
"""


class Bank(threading.Thread):
    """Has a clerk work, and another one when the mount was gone."""

    def __init__(self, world: World, name: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"bank {name}", daemon=True)
        self._world, self._device, self._stop_word = world, name, stop
        self._record: Record = world.record
        self._choose = random.Random(f"{seed} bank {name}")
        self._modes = self._choose.sample(_MODES, len(_MODES))
        self._clerk: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while not self._stop_word.wait(0.5):
            with contextlib.suppress(OSError):
                self._work()

    def _work(self) -> None:
        folder = self._world.own(self._device, "bank", self._device)
        folder.mkdir(exist_ok=True)
        mode = self._modes[self._world.generation[self._device] % len(_MODES)]
        path = folder / "bank.db"
        seed = str(self._choose.randrange(1 << 30))
        self._record.operation(self._device, "bank", folder.name, mode, "opened")
        clerk = self._clerk = subprocess.Popen(
            [sys.executable, "-c", _CLERK, str(path), mode, seed], stdout=subprocess.PIPE, text=True
        )
        last = ""
        assert clerk.stdout is not None
        for line in clerk.stdout:
            last = line.strip()
            if last == "committed":
                self._record.count("transactions")
            if self._stop_word.is_set():
                clerk.terminate()
        code = clerk.wait()
        self._record.operation(self._device, "bank", folder.name, "ended", code, last)
        if code not in (0, _EXIT_GONE, -signal.SIGBUS, -signal.SIGTERM, -signal.SIGKILL):
            self._record.find("own bank", f"{self._device} {folder.name} {mode}: exit {code}, {last}")

    def finish(self) -> None:
        """Let the clerk go home; he may be in the midst of a transaction."""
        if self._clerk is not None:
            self._clerk.terminate()

    def kill(self) -> None:
        if self._clerk is not None:
            self._clerk.kill()


def look_at_bank(world: World, shown_on: str, owner: str, scratch: Path, stop: threading.Event) -> None:
    """Copy another device's database with what belongs to it, and open the copy.

    The copy counts only when none of the names was given to another file meanwhile, nor is a moment later.
    """
    folder = world.own(shown_on, "bank", owner)
    target = scratch / f"{folder.name} on {shown_on} {world.record.now():.2f}"
    with contextlib.ExitStack() as stack:
        files: dict[str, int] = {}
        for side in _SIDES:
            with contextlib.suppress(FileNotFoundError):
                files[side] = os.open(folder / f"bank.db{side}", os.O_RDONLY)
                stack.callback(os.close, files[side])
        if "" not in files:
            return
        seen = _identities(folder)
        if seen != {side: _identity(os.fstat(file)) for side, file in files.items()}:
            return
        contents = {side: _whole(file) for side, file in files.items()}
        if stop.wait(_STABLE_SECONDS) or _identities(folder) != seen:
            return
    if not contents[""]:
        return  # SQLite has not written anything yet
    target.mkdir(parents=True)
    for side, content in contents.items():
        (target / f"bank.db{side}").write_bytes(content)
    what = _wrong_with(target / "bank.db")
    world.record.count("banks seen")
    if what:
        sizes = {f"bank.db{side}": len(content) for side, content in contents.items()}
        for side, content in contents.items():  # SQLite has changed the copy when it opened it
            (target / f"bank.db{side}.seen").write_bytes(content)
        world.record.find(
            "bank", f"{shown_on} shows {folder.name}: {what}; {sizes}; kept in looks/{target.name}"
        )
    else:
        shutil.rmtree(target)


def _wrong_with(path: Path) -> str:
    db = sqlite3.connect(path)
    try:
        damage = db.execute("PRAGMA integrity_check").fetchall()
        if damage != [("ok",)]:
            return f"integrity_check: {damage[:2]}"
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return ""
        accounts, total = db.execute("SELECT count(*), total(sum) FROM account").fetchone()
        if (accounts, total) != (_ACCOUNTS, _ACCOUNTS * _EACH):
            return f"{accounts} accounts, sum {total:.0f} instead of {_ACCOUNTS * _EACH}"
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)
    finally:
        db.close()


def _identity(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _identities(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for side in _SIDES:
        with contextlib.suppress(FileNotFoundError):
            found[side] = _identity((folder / f"bank.db{side}").stat())
    return found


def _whole(file: int) -> bytes:
    found = b""
    while piece := os.pread(file, 1 << 20, len(found)):
        found += piece
    return found
