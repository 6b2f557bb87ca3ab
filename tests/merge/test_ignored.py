"""What is ignored here, and what other devices do meanwhile: nothing of it is lost, and nothing leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.members.roles import Rights, Role
from hybrisfs.merge.authority import fault, may_write
from hybrisfs.registers.ignore_rules import encode_rank, rule_key
from hybrisfs.tree.residency import State
from tests.merge.fleet import Device, Fleet
from tests.merge.view import check_view, what_fsck_says


def rule(device: Device, *patterns: str, rank: int = 1) -> None:
    rig = device.rig
    for number, pattern in enumerate(patterns, rank):
        rig.sharing.signer.sign(rig.tx, [(rule_key(pattern), encode_rank(number if rank else 0))], 0)
    rig.fs.ignored.rules_changed(rig.tx)


def ignored(device: Device) -> set[str]:
    rig = device.rig
    return {path for path, inode in device.walk().items() if rig.fs.ignored.covers(rig.tx, inode)}


def met(fleet: Fleet) -> None:
    fleet.meet()
    fleet.meet()
    for device in fleet.devices:
        if device.rig.fs.changes.unsigned:
            assert not device.rig.fs.changes.waiting
            assert not what_fsck_says(device)
        else:
            check_view(device)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    fleet[0].mkdir("project")
    fleet[0].write("project/main.c", b"source")
    rule(fleet[0], "build/", "*.log")
    met(fleet)
    fleet[1].mkdir("project/build")
    fleet[1].write("project/build/main.o", b"object")
    fleet[1].write("project/run.log", b"lines")
    met(fleet)
    assert ignored(fleet[1]) == {"project/build", "project/build/main.o", "project/run.log"}
    assert fleet[0].names() == ["project", "project/main.c"]
    yield fleet
    fleet.discard()


def test_a_rule_holds_on_all_devices(fleet: Fleet) -> None:
    fleet[0].write("a.log", b"mine")
    met(fleet)
    assert "a.log" not in fleet[1].names()
    rule(fleet[1], "*.log", rank=0)
    met(fleet)
    assert fleet[1].read("a.log") == b"mine"
    assert fleet[0].read("project/run.log") == b"lines"
    assert ignored(fleet[0]) == set()
    assert ignored(fleet[1]) == {"project/build", "project/build/main.o"}


def test_who_adds_a_rule_wins_over_who_removes_it_at_the_same_time(fleet: Fleet) -> None:
    rule(fleet[0], "*.log", rank=0)
    rule(fleet[1], "*.log", rank=7)
    met(fleet)
    for device in fleet.devices:
        device.write(f"{device.name}.log", b"")
        assert f"{device.name}.log" in ignored(device)


def test_a_folder_that_another_device_removes_stays_with_what_is_ignored_in_it(fleet: Fleet) -> None:
    fleet[0].remove("project/main.c")
    fleet[0].remove("project")
    met(fleet)
    assert fleet[0].names() == []
    assert fleet[1].names() == ["project", "project/build", "project/build/main.o", "project/run.log"]
    assert fleet[1].read("project/run.log") == b"lines"
    fleet[1].write("project/build/more.o", b"goes on")
    met(fleet)
    assert fleet[0].names() == []
    fleet[1].write("project/notes", b"synced")
    met(fleet)
    assert fleet[0].names() == ["project", "project/notes"]
    assert len(ignored(fleet[1])) == 4


def test_a_folder_that_another_device_moves_takes_it_along(fleet: Fleet) -> None:
    fleet[0].move("project", "work")
    met(fleet)
    assert ignored(fleet[1]) == {"work/build", "work/build/main.o", "work/run.log"}


def test_a_folder_that_another_device_moves_out_of_a_rule(fleet: Fleet) -> None:
    rule(fleet[0], "/project/out")
    met(fleet)
    fleet[1].write("project/out", b"for now")
    met(fleet)
    assert "project/out" in ignored(fleet[1])
    fleet[0].move("project", "work")
    met(fleet)
    assert fleet[0].read("work/out") == b"for now"


def test_another_device_puts_a_file_where_the_folder_was(fleet: Fleet) -> None:
    fleet[0].remove("project/main.c")
    fleet[0].remove("project")
    fleet[0].write("project", b"a file now")
    met(fleet)
    assert fleet[0].names() == ["project"]
    assert fleet[1].read("project/run.log") == b"lines"
    [other] = [path for path in fleet[1].names() if "/" not in path and path != "project"]
    assert fleet[1].read(other) == b"a file now"


def test_another_device_makes_a_synced_file_of_that_name(fleet: Fleet) -> None:
    """It was made before the rule came there, or by an older program."""
    rule(fleet[0], "*.log", rank=0)
    fleet[0].write("project/run.log", b"another")
    fleet[0].sign()
    rule(fleet[1], "*.log", rank=9)
    met(fleet)
    assert fleet[0].read("project/run.log") == b"another"
    contents = {fleet[1].read(path) for path in fleet[1].names() if path.startswith("project/run")}
    assert contents == {b"lines", b"another"}
    assert ignored(fleet[1]) == {"project/build", "project/build/main.o", "project/run.log"}


def test_another_device_makes_a_synced_folder_of_that_name(fleet: Fleet) -> None:
    rule(fleet[0], "build/", rank=0)
    fleet[0].mkdir("project/build")
    fleet[0].write("project/build/README", b"synced")
    fleet[0].sign()
    rule(fleet[1], "build/", rank=9)
    met(fleet)
    assert fleet[1].read("project/build/main.o") == b"object"
    assert fleet[1].read("project/build/README") == b"synced"
    assert "project/build/main.o" not in fleet[0].names()
    assert ignored(fleet[1]) >= {"project/build/main.o"}
    fleet[1].write("project/build/README", b"edited")
    fleet[1].write("project/build/next.o", b"ignored, too")
    met(fleet)
    assert fleet[0].read("project/build/README") == b"edited"
    assert "project/build/next.o" not in fleet[0].names()
    fleet[1].move("project/build/README", "project/build/LIESMICH")
    met(fleet)
    assert fleet[0].read("project/build/LIESMICH") == b"edited"
    assert "project/build/main.o" not in fleet[0].names()
    rule(fleet[1], "build/", rank=0)
    rule(fleet[0], "*.log", rank=0)
    met(fleet)
    for device in fleet.devices:
        assert device.read("project/build/main.o") == b"object"
        assert device.read("project/build/next.o") == b"ignored, too"
        check_view(device)


def test_it_survives_a_restart_of_any_device(fleet: Fleet) -> None:
    fleet[0].remove("project/main.c")
    fleet[0].remove("project")
    met(fleet)
    fleet[1].rig = fleet[1].rig.reopen()
    met(fleet)
    assert fleet[1].names() == ["project", "project/build", "project/build/main.o", "project/run.log"]
    assert fleet[0].names() == []


def test_its_state_says_so(fleet: Fleet) -> None:
    rig = fleet[1].rig
    assert rig.reading.residency.state(rig.tx, fleet[1].at("project/run.log")) is State.IGNORED
    assert rig.reading.residency.state(rig.tx, fleet[1].at("project/main.c")) is State.DURABLE


def test_rules_in_a_file_hold_on_all_devices(fleet: Fleet) -> None:
    fleet[0].write("project/.hybrisfsignore", b"secret*\n")
    met(fleet)
    fleet[1].write("project/secret.txt", b"mine")
    fleet[1].sign()
    rig = fleet[1].rig
    [rules] = rig.fs.ignored.unread_files
    assert rules == fleet[1].at("project/.hybrisfsignore").ino
    assert rig.fs.ignored.undecided
    assert "project/secret.txt" not in ignored(fleet[1])
    assert rig.reading.residency.state(rig.tx, fleet[1].at("project/secret.txt")) is State.UPLOADING
    pending = rig.fs.ignored.pending_nodes(rig.tx)
    rig.commit()
    rig.reading.pinner.pin_round()
    fleet[1].sign()
    assert not rig.fs.ignored.undecided and not rig.fs.ignored.unread_files
    assert "project/secret.txt" in ignored(fleet[1])
    assert rig.fs.ignored.pending_nodes(rig.tx) < pending
    met(fleet)
    assert "project/secret.txt" not in fleet[0].names()


def test_nothing_leaves_while_the_clouds_are_away_that_rules_may_keep(fleet: Fleet) -> None:
    fleet[0].write("project/.hybrisfsignore", b"secret*\n")
    met(fleet)
    fleet.clouds.down = True
    fleet[1].write("project/secret.txt", b"mine")
    fleet[1].write("project/public.txt", b"ours")
    fleet[1].write("elsewhere.txt", b"ours, too")
    fleet[1].rig = fleet[1].rig.reopen()
    while fleet[1].rig.publish(everything=True):
        pass
    fleet[0].receive(fleet[1].log())
    assert "elsewhere.txt" in fleet[0].names()
    assert not {"project/secret.txt", "project/public.txt"} & {*fleet[0].names()}
    fleet.clouds.down = False
    fleet[1].rig.commit()
    fleet[1].rig.reading.pinner.pin_round()
    met(fleet)
    assert fleet[0].read("project/public.txt") == b"ours"
    assert "project/secret.txt" not in fleet[0].names()


def test_contributors_and_readers_write_no_rules(fleet: Fleet) -> None:
    key, value = rule_key("everything"), encode_rank(1)
    grounds = fleet[0].rig.registers.roles.grounds(Rights(Role.CONTRIBUTOR), None)
    writer = fleet[1].key.device_id
    assert may_write(Role.FULL, writer, key, value, grounds)
    for role in (Role.CONTRIBUTOR, Role.READER):
        assert not may_write(role, writer, key, value, grounds)
    assert fault(writer, rule_key("*.o")[:1] + b"*", value) is not None
