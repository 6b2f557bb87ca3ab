"""Labels as they were: shown with the past, told of in the account of changes, and checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import cast

import pytest

from hybrisfs.tree.facets import LABELS_XATTR
from hybrisfs.verify.derived_check import check_versions
from hybrisfs.versions.account import Account
from hybrisfs.versions.catalog import Catalog
from hybrisfs.versions.retention import parse_retention
from hybrisfs.versions.tree import VersionTree
from tests.merge.fleet import Device, Fleet
from tests.versions.support import Clock

OFF = parse_retention("off")


@pytest.fixture
def fleet(clock: Clock) -> Iterator[Fleet]:
    fleet = clock.fleet(2)
    fleet[0].write("file", b"content")
    fleet[0].mkdir("folder")
    fleet.meet()
    clock.tick()
    yield fleet
    fleet.discard()


def change(fleet: Fleet, number: int, path: str, clock: Clock, *, add: str = "", remove: str = "") -> int:
    """The moment at which it is signed."""
    device = fleet[number]
    device.rig.fs.labels.add(device.rig.tx, device.at(path), [add] if add else [])
    device.rig.fs.labels.remove(device.rig.tx, device.at(path), [remove] if remove else [])
    fleet.meet()
    return clock.tick()


def then(device: Device, path: bytes, moment: int) -> bytes | None:
    """The labels that a node had."""
    device.rig.commit()
    with device.rig.db.snapshot() as db:
        tree = VersionTree(db, moment)
        node = tree.find([path] if path else [])
    assert node is not None
    return dict(node.attr.xattrs).get(LABELS_XATTR)


@pytest.mark.parametrize("path", ["file", "folder", ""])
def test_what_a_node_had_then(fleet: Fleet, clock: Clock, path: str) -> None:
    before = clock.now - 1
    moments = {
        before: None,
        change(fleet, 0, path, clock, add="b"): b"b",
        change(fleet, 1, path, clock, add="a"): b"a,b",
        change(fleet, 0, path, clock, remove="b"): b"a",
        change(fleet, 0, path, clock, remove="a"): None,
        change(fleet, 1, path, clock, add="b"): b"b",
    }
    for device in fleet.devices:
        assert {moment: then(device, path.encode(), moment) for moment in moments} == moments


def test_who_added_and_removed_what(fleet: Fleet, clock: Clock) -> None:
    change(fleet, 0, "file", clock, add="a")
    change(fleet, 1, "file", clock, remove="a")
    fleet[0].rig.commit()
    with fleet[0].rig.db.snapshot() as db:
        changes = Account(db, Catalog(db, OFF)).changes([b"file"])
    assert [(one.device, one.what) for one in changes][:2] == [
        ("bob", ("label removed: a",)),
        ("ada", ("label added: a",)),
    ]


def test_what_is_kept_of_them_is_what_updates_said(fleet: Fleet, clock: Clock) -> None:
    change(fleet, 0, "file", clock, add="a")
    change(fleet, 0, "file", clock, remove="a")
    db = cast("sqlite3.Connection", fleet[1].rig.tx)
    assert list(check_versions(db)) == []
    db.execute("UPDATE past SET value = x'00' WHERE key >= x'6c' AND key < x'6d'")
    [problem] = check_versions(db)
    assert problem.startswith("label ")
