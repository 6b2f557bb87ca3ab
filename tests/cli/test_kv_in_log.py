"""hybrisfs kv and conflicts, when a key has several values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hybrisfs.daemon.service import Daemon
from hybrisfs.kv.containers import ContainerStore, Key
from hybrisfs.kv.log_moves import MovedContainer
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.migrate import migrate
from hybrisfs.kv.record import leaving
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes
from tests.daemon.stored import Stored
from tests.kv.rig import Rig
from tests.kv.test_log_store import BOX, store
from tests.merge.fleet import Fleet


class InLog(Stored):
    """The containers in the log of a device."""

    log: LogStore

    def of(self, container: str) -> ContainerStore:
        return self.log

    def session(self, seen: str | None, patience: float) -> str:
        if seen is not None:
            self.log.catch_up(seen, patience)
        return self.log.session()

    def moved(self) -> Sequence[MovedContainer]:
        return self.log.moved()

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        return self.log.conflicts()


@pytest.fixture
def fleet(served: Daemon, volumes: FakeVolumes, tmp_path: Path) -> Iterator[Fleet]:
    """Two devices; commands are of the first."""
    served.start()
    fleet = Fleet(2)
    with Rig(tmp_path) as rig:
        values = InLog(rig)
        values.log = store(fleet[0])
        volumes.opened["photos"].key_values = values
        values.log.create_container(BOX)
        fleet.meet()
        yield fleet
    fleet.discard()


def test_all_values_are_shown_and_each_can_be_read(fleet: Fleet, run: Run) -> None:
    for device, value in zip(fleet.devices, (b"ada", b"bobby"), strict=True):
        store(device).put(BOX, "a", value)
    fleet.meet()
    shown = run("kv", "get", "photos", f"{BOX}/a", "--all").stdout.splitlines()
    assert shown[0].split() == ["TAG", "SIZE", "WRITTEN"]
    tags = [line.split()[0] for line in shown[1:]]
    found = {run("kv", "get", "photos", f"{BOX}/a", "--tag", tag).stdout for tag in tags}
    assert found == {"ada", "bobby"}
    assert run("kv", "get", "photos", f"{BOX}/a").stdout in found
    assert run("kv", "get", "photos", f"{BOX}/a", "--tag", "9-9").exit_code == 6


def test_a_session_says_when_another_machine_has_seen_as_much(fleet: Fleet, run: Run) -> None:
    session = run("kv", "session", "photos").stdout.strip()
    assert run("kv", "session", "photos", session, "--wait", "0").stdout.strip() == session
    store(fleet[1]).put(BOX, "a", b"1")
    late = run("kv", "session", "photos", store(fleet[1]).session(), "--wait", "0")
    assert (late.exit_code, late.stdout) == (1, "")
    assert "has not yet seen" in late.stderr
    assert run("kv", "session", "photos", "nonsense").exit_code == 2


def test_conflicts_list_names_the_key_until_it_is_written(fleet: Fleet, run: Run, tmp_path: Path) -> None:
    for device in fleet.devices:
        store(device).put(BOX, "a", b"1")
    fleet.meet()
    listed = run("conflicts", "list", "--volume", "photos").stdout.splitlines()
    assert listed[-2:] == ["KEY    VALUES", "box/a  2"]
    facts = json.loads(run("conflicts", "list", "--volume", "photos", "--json").stdout)
    assert facts["keys"] == [{"container": BOX, "key": "a", "values": 2}]
    value = tmp_path / "value"
    value.write_bytes(b"both")
    assert run("kv", "put", "photos", f"{BOX}/a", str(value)).exit_code == 0
    assert run("conflicts", "list", "--volume", "photos", "--json").stdout.count('"container"') == 0


def test_conflicts_list_tells_of_containers_that_have_left_the_log(
    fleet: Fleet, run: Run, volumes: FakeVolumes
) -> None:
    values = volumes.opened["photos"].key_values
    assert isinstance(values, InLog)
    for device in fleet.devices:
        store(device).put(BOX, f"{device.name}", b"1")
    fleet.meet()
    values.rig.store.delete_container(BOX)
    migrate(BOX, values.log, values.rig.store, lambda what, done, total: None)
    assert run("conflicts", "list", "--volume", "photos").stdout == "There are no conflicts.\n"
    store(fleet[1]).put(BOX, "late", b"1")
    store(fleet[1]).moves.rename(BOX, leaving(BOX, "elsewhere"))
    fleet.meet()
    listed = run("conflicts", "list", "--volume", "photos").stdout.splitlines()
    assert "box has left the log" in listed[0]
    assert "have written 1 key. hybrisfs kv migrate" in listed[0]
    assert "box was moved to two places" in listed[1]
    facts = json.loads(run("conflicts", "list", "--volume", "photos", "--json").stdout)
    assert facts["moved"] == [{"container": BOX, "late": 1, "twice": True}]


def test_a_move_tells_what_it_has_put_beside(fleet: Fleet, run: Run, volumes: FakeVolumes) -> None:
    values = volumes.opened["photos"].key_values
    assert isinstance(values, InLog)
    volumes.opened["photos"].key_values = values._replace(beside=["a (late 2-7)"])
    moved = run("kv", "migrate", "photos", BOX, "--metadata", "device")
    assert moved.stdout.splitlines() == [
        "Moved the container box: 3 keys copied.",
        "Written late, beside another value: box/a (late 2-7)",
    ]
    facts = json.loads(run("kv", "migrate", "photos", BOX, "--metadata", "device", "--json").stdout)
    assert facts["beside"] == ["a (late 2-7)"]
