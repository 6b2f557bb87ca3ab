"""Ignore rules on open volumes: what they keep here is counted, listed, kept, and never called safe."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from hybrisfs.admit.rebuild import rebuild_volume
from hybrisfs.api.ignoring import IgnoredPath, IgnoreRule
from hybrisfs.errors import UsageError
from hybrisfs.registers.ignore_rules import MOST_RULES, encode_rank, rule_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.residency import State
from hybrisfs.versions.tree import format_moment
from tests.volume.device import NAME, Device, two_devices

LINES = os.urandom(5000)


def until(condition: Callable[[], bool], what: str) -> None:
    waiting = threading.Event()
    for _ in range(600):
        if condition():
            return
        waiting.wait(0.05)
    raise AssertionError(f"never: {what}")


def set_aside(device: Device, count: int) -> None:
    until(lambda: device.volume.status(look=False).ignored.files == count, f"{count} ignored")


def has(device: Device, name: str) -> bool:
    with device.volume.fs.state.transaction() as tx:
        return device.volume.fs.lookup(tx, ROOT_INO, name.encode()) is not None


def state(device: Device, name: str) -> str | None:
    entries, _ = device.volume.browsing.folder(PurePath(), "", 100)
    return next(one.state for one in entries if one.name == name)


def test_what_is_ignored_is_told_and_not_called_safe(device: Device) -> None:
    device.volume.ignoring.add(["*.log", "build/"])
    device.write("a.log", LINES)
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        fs.make(tx, ROOT_INO, b"build", stat.S_IFDIR | 0o755, 1, 1)
    device.write("a.txt", b"synced")
    device.sync()
    set_aside(device, 2)
    status = device.volume.status(look=False)
    assert (status.pending_files, status.pending_bytes) == (0, 0)
    assert status.ignored.bytes == len(LINES)
    assert status.ignored.rules == [
        IgnoreRule("*.log", status.devices[0].name),
        IgnoreRule("build/", status.devices[0].name),
    ]
    assert device.volume.pending(PurePath(), 10).total == 0
    assert state(device, "a.log") == state(device, "build") == State.IGNORED.value
    assert state(device, "a.txt") == State.DURABLE.value
    found = device.volume.ignoring.list(10)
    assert found.paths == [IgnoredPath("a.log", folder=False), IgnoredPath("build", folder=True)]
    assert device.fsck(clouds=True).problems == []


def test_a_rule_with_the_highest_rank_keeps_nobody_from_adding_others(device: Device) -> None:
    first, last = rule_key("*.o"), rule_key("*.tmp")
    with device.volume.fs.state.log_transaction() as tx:
        writes = [(last, encode_rank((1 << 32) - 1)), (first, encode_rank(7))]
        device.volume.sharing.signer.sign(tx, writes, 0)
        device.volume.fs.ignored.rules_changed(tx)
    device.volume.ignoring.add(["*.log", "*.o"])
    listed = [rule.pattern for rule in device.volume.status(look=False).ignored.rules]
    assert listed == ["*.tmp", "*.log", "*.o"]


def test_nothing_evicts_it(device: Device) -> None:
    device.volume.ignoring.add(["*.log"])
    device.write("a.log", LINES)
    device.sync()
    freed = device.volume.content.evict(PurePath("a.log"))
    assert (freed.freed_bytes, freed.pending_bytes) == (0, len(LINES))
    device.volume.drop_cache()
    assert device.read("a.log") == LINES
    device.reopen()
    assert device.read("a.log") == LINES
    set_aside(device, 1)
    assert device.fsck().problems == []


def test_no_restore_takes_its_place(device: Device) -> None:
    device.write("a.log", b"once synced")
    device.write("b", b"old")
    device.sync()
    device.around.ahead_ns += 60 * 10**9
    then = format_moment(device.around.environment.time_ns())
    device.around.ahead_ns += 60 * 10**9
    fs = device.volume.fs
    with fs.state.transaction() as tx:
        fs.unlink(tx, ROOT_INO, b"a.log")
    device.write("b", b"new")
    device.volume.ignoring.add(["*.log"])
    device.write("a.log", LINES)
    device.sync()
    set_aside(device, 1)
    told = device.volume.versions.preview("", then, None, 10)
    assert [(one.path, one.what) for one in told.changes] == [("a.log", "left"), ("b", "changed")]
    restored = device.volume.versions.restore("", then, None, None)
    assert [one.path for one in restored.left] == ["a.log"]
    with pytest.raises(UsageError, match="on this machine only"):
        device.volume.versions.restore("a.log", then, None, None)
    device.sync()
    assert (device.read("a.log"), device.read("b")) == (LINES, b"old")
    device.volume.versions.restore("a.log", then, None, "a.log of then")
    assert device.read("a.log of then") == b"once synced"


def test_rules_reach_other_devices_and_what_they_keep_does_not(tmp_path: Path) -> None:
    with two_devices(tmp_path) as (first, second):
        first.volume.ignoring.add(["*.log"])
        until(lambda: bool(second.volume.status(look=False).ignored.rules), "the rule")
        second.write("here.log", LINES)
        second.write("there", b"synced")
        second.sync()
        until(lambda: has(first, "there"), "the other file")
        assert not has(first, "here.log")
        first.volume.ignoring.remove(["*.log"])
        until(lambda: has(first, "here.log"), "the file")
        second.sync()
        until(lambda: first.volume.status(look=False).ignored.rules == [], "no rule")
        assert first.read("here.log") == LINES


def test_what_cannot_be_a_rule_is_explained(device: Device) -> None:
    ignoring = device.volume.ignoring
    for pattern in ("*", "", "a\nb"):
        with pytest.raises(UsageError):
            ignoring.add(["good", pattern])
    with pytest.raises(UsageError, match="there is no ignore rule"):
        ignoring.remove(["good"])
    ignoring.add([f"name{number}" for number in range(MOST_RULES)])
    with pytest.raises(UsageError, match="more than"):
        ignoring.add(["another"])
    ignoring.remove(["name0"])
    ignoring.add(["another"])
    assert ignoring.list(0).rules[-1].pattern == "another"


def test_a_rule_that_is_added_again_stands_behind_the_others(device: Device) -> None:
    ignoring = device.volume.ignoring
    ignoring.add(["*.log", "!keep.log"])
    ignoring.add(["*.log"])
    assert [one.pattern for one in ignoring.list(0).rules] == ["!keep.log", "*.log"]


def test_a_rebuild_brings_it_back_and_does_not_sync_it(device: Device) -> None:
    device.volume.ignoring.add(["*.log"])
    device.write("a.log", LINES)
    device.write("a.txt", b"synced")
    device.sync()
    set_aside(device, 1)
    device.close()
    report = rebuild_volume(device.home, NAME, lambda stage, done, total: None)
    assert [path.rpartition("/")[2] for path in report.recovered] == ["a.log"]
    device.reopen()
    until(lambda: bool(device.volume.status(look=False).ignored.rules), "the rule")
    device.sync()
    set_aside(device, 1)
    assert device.read("a.txt") == b"synced"
    [kept] = device.volume.ignoring.list(10).paths
    assert kept.path.endswith("a.log") and kept.path != "a.log"
