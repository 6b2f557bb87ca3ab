"""One life of three devices: chaos, healing, judgement, and again."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.system.chaos.agreement import judge
from tests.system.chaos.bank import Bank
from tests.system.chaos.faults import CloudFaults, Faults, LinkFaults, MachineFaults
from tests.system.chaos.looks import Visitor
from tests.system.chaos.programs import Person
from tests.system.chaos.record import CHECKS, Record
from tests.system.chaos.repository import Committer
from tests.system.chaos.turns import TurnReader, TurnWriter
from tests.system.chaos.world import NAMES, World

__all__ = ["ROUND_SECONDS", "live"]

ROUND_SECONDS = 45.0
_END_SECONDS = 90.0  # until the last program has noticed that it is to stop


def live(
    seed: int, seconds: float = ROUND_SECONDS, checks: Collection[str] = tuple(CHECKS)
) -> dict[str, int]:
    """Live through rounds of chaos that take about *seconds* in all; returns what was counted.

    Raises:
        AssertionError: a check found something; the message names the seed and the folder with the logs.
    """
    root = Path(tempfile.mkdtemp(prefix=f"hybrisfs-chaos-{seed}-"))
    record = Record(root / "logs", checks)
    kept = True
    try:
        with World(root, record) as world:
            try:
                number = 0
                while record.now() < seconds or not number:
                    number += 1
                    _round(world, seed * 1000 + number, min(ROUND_SECONDS, seconds))
                    if record.findings:
                        break
            finally:
                world.keep_evidence()
        if record.findings:
            raise AssertionError(_message(seed, record))
        kept = False
        return dict(record.counts)
    except pytest.skip.Exception:
        kept = False
        raise
    except Exception as error:
        error.add_note(f"seed {seed}; operations, faults, logs and databases of the devices: {record.folder}")
        raise
    finally:
        (record.folder / "counts").write_text(json.dumps(record.counts, indent=1, sort_keys=True))
        record.close()
        for name in os.listdir(root):  # noqa: PTH208
            if not (kept and root / name == record.folder):
                shutil.rmtree(root / name, ignore_errors=True)
        if not kept:
            root.rmdir()


def _round(world: World, seed: int, seconds: float) -> None:
    stop, stop_faults = threading.Event(), threading.Event()
    scratch = world.record.folder / "looks"
    clerks = [Bank(world, name, seed, stop) for name in NAMES]
    people: list[threading.Thread] = [
        *(Person(world, name, seed, stop) for name in NAMES),
        *(TurnWriter(world, name, seed, stop) for name in NAMES),
        *(TurnReader(world, name, stop) for name in NAMES),
        *(Committer(world, name, seed, stop) for name in NAMES),
        *(Visitor(world, name, seed, scratch, stop) for name in NAMES),
        *clerks,
    ]
    faults: list[Faults] = [
        LinkFaults(world, "link", seed, stop_faults),
        MachineFaults(world, "machine", seed, stop_faults),
        CloudFaults(world, "cloud", seed, stop_faults),
    ]
    world.record.fault("round", seed, "begins")
    try:
        for thread in (*people, *faults):
            thread.start()
        stop_faults.wait(seconds)
        stop_faults.set()
        _join(world.record, faults)
        for fault in faults:
            if fault.error is not None:
                raise fault.error
        world.heal()
        stop.set()
        for clerk in clerks:
            clerk.finish()
        _join(world.record, people)
    finally:
        stop_faults.set()
        stop.set()
        for clerk in clerks:
            clerk.kill()
    world.record.fault("round", seed, "healed")
    judge(world)
    world.record.fault("round", seed, "judged")


def _join(record: Record, threads: Collection[threading.Thread]) -> None:
    end = time.monotonic() + _END_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    alive = [thread.name for thread in threads if thread.is_alive()]
    if alive:
        with (record.folder / "threads").open("w") as file:
            faulthandler.dump_traceback(file)
        raise AssertionError(f"{alive} do not end; where they stand: {record.folder}/threads")


def _message(seed: int, record: Record) -> str:
    found = ", ".join(f"{check} ({many})" for check, many in sorted(record.findings.items()))
    again = f"again: python -m tests.system.chaos {seed}"
    return f"seed {seed}: {found}; operations and logs: {record.folder}; {again}\n{record.told()}"
