"""Consent to deletion, step by step: who has to agree, who refuses, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.gc.limits import GcLimits
from hybrisfs.registers.proposals import Answer, Answers, Book, Proposal, Stage
from tests.gc.support import Collecting, check_shown, two_devices
from tests.merge.fleet import Device, Fleet
from tests.volume.test_fsck_devices import problems

OLD = b"old content " * 500
LONG = bytes(range(256)) * 200


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two devices that know of a file; the first has made it and deletes it."""
    fleet = two_devices()
    fleet[0].write("old", OLD)
    fleet[0].write("kept", b"kept content")
    fleet[0].sign()
    fleet[0].write("apart", b"in another pack")
    fleet.meet()
    yield fleet
    for device in fleet.devices:
        check_shown(device)
        assert problems(device) == []
    fleet.discard()


def advance(device: Device) -> bool:
    """One step of a device; whether it had something to say."""
    said = Collecting(device).step()
    Collecting(device).dispose()
    return said


def pack_of(device: Device, content: bytes) -> bytes:
    """The pack of the chunk with this content, by its id."""
    identity = next(one for one, data in device.rig.plaintexts.items() if data == content)
    row = device.rig.db.rows.execute(
        "SELECT p.id FROM chunk c JOIN pack p ON p.number = c.pack WHERE c.id = ?", (identity,)
    ).fetchone()
    assert row is not None
    pack: bytes = row[0]
    return pack


def retire(fleet: Fleet) -> bytes:
    """Delete the file that alone is in its pack, and have the pack proposed; the pack's id."""
    pack = pack_of(fleet[0], b"in another pack")
    fleet[0].remove("apart")
    fleet[0].sign()
    assert Collecting(fleet[0]).look() == 1
    return pack


def test_all_must_agree(fleet: Fleet) -> None:
    pack = retire(fleet)
    assert advance(fleet[0])  # promised
    assert not advance(fleet[0])
    fleet.send(0, 1)
    assert advance(fleet[1])  # promised
    assert advance(fleet[1])  # agreed, for it knows of both promises
    assert pack in fleet.clouds.packs
    fleet.send(1, 0)
    assert advance(fleet[0])  # agreed
    assert pack in fleet.clouds.packs
    assert advance(fleet[0])  # ended
    assert pack not in fleet.clouds.packs
    fleet.meet()
    for device in fleet.devices:
        assert not advance(device)
        assert device.names() == ["kept", "old"]
        device.rig.room.drop_all()
        assert device.read("old") == OLD
        assert device.rig.db.rows.execute("SELECT n FROM pack WHERE id = ?", (pack,)).fetchone() == (0,)
        assert device.rig.db.rows.execute("SELECT count(*) FROM condemned").fetchone() == (0,)


@pytest.mark.parametrize("step", ["propose", "promise", "agree", "end"])
def test_a_device_that_was_removed_meanwhile_says_nothing_more(fleet: Fleet, step: str) -> None:
    if step == "propose":
        fleet[0].remove("apart")
        fleet[0].sign()
    else:
        retire(fleet)
    if step in ("agree", "end"):
        assert advance(fleet[0])
        fleet.send(0, 1)
        assert advance(fleet[1]) and advance(fleet[1])
        fleet.send(1, 0)
    if step == "end":
        assert advance(fleet[0])
    fleet.send(0, 1)
    assert fleet[1].rig.sharing.membership.remove("ada").final
    fleet[0].receive(fleet[1].log())
    before, packs = fleet[0].log(), set(fleet.clouds.packs)
    assert not Collecting(fleet[0]).look()
    assert not advance(fleet[0])
    assert fleet[0].log() == before and set(fleet.clouds.packs) == packs


def test_a_device_that_is_silent_keeps_everything(fleet: Fleet) -> None:
    pack = retire(fleet)
    for _ in range(5):
        advance(fleet[0])
    assert pack in fleet.clouds.packs
    assert fleet[1].read("apart") == b"in another pack"


def test_a_device_that_has_named_the_content_meanwhile_refuses(fleet: Fleet) -> None:
    pack = retire(fleet)
    advance(fleet[0])
    fleet[1].write("mine", b"in another pack")
    fleet[1].remove("apart")
    fleet[1].sign()
    fleet.send(0, 1)
    while advance(fleet[1]):
        pass
    fleet.send(1, 0)
    while advance(fleet[0]):
        pass
    assert pack in fleet.clouds.packs
    fleet.meet()
    for device in fleet.devices:
        assert device.read("mine") == b"in another pack"
        advance(device)
        assert not device.rig.db.rows.execute("SELECT count(*) FROM condemned").fetchone()[0]


def test_what_was_needed_for_a_moment_between_promise_and_agreement_is_refused(fleet: Fleet) -> None:
    """The other device gives the file that is being deleted a name, which brings it back, and takes it away:
    who hears of the one and not of the other may build on it."""
    pack = pack_of(fleet[0], b"in another pack")
    fleet[1].move("apart", "renamed")
    fleet[1].sign()
    renamed = fleet[1].log()
    fleet[0].remove("apart")
    fleet[0].sign()
    assert Collecting(fleet[0]).look() == 1
    assert advance(fleet[0])
    fleet[0].receive(renamed)
    assert fleet[0].read("renamed") == b"in another pack"
    fleet[0].remove("renamed")
    fleet.meet()
    for _ in range(3):
        for device in fleet.devices:
            while advance(device):
                pass
        fleet.meet()
    assert pack in fleet.clouds.packs


def test_equal_content_that_is_written_after_the_promise_goes_to_the_clouds_anew(fleet: Fleet) -> None:
    pack = retire(fleet)
    advance(fleet[0])
    fleet.send(0, 1)
    while advance(fleet[1]):
        pass
    fleet[1].write("again", b"in another pack")
    fleet[1].sign()
    assert pack_of(fleet[1], b"in another pack") != pack
    fleet.send(1, 0)
    while advance(fleet[0]):
        pass
    fleet.meet()
    for device in fleet.devices:
        device.rig.room.drop_all()
        assert device.read("again") == b"in another pack"


def test_the_list_of_a_long_file_names_chunks_too(fleet: Fleet) -> None:
    """A device that has heard of a long file reads the list of its chunks before it answers."""
    fleet[0].write("part", LONG[:16384])
    fleet[0].sign()  # the list of chunks comes into another pack than the first chunks
    fleet[0].write("long", LONG)
    fleet.meet()
    fleet[0].rig.room.drop_all()
    pack = pack_of(fleet[0], LONG[:4096])
    assert fleet[1].rig.db.rows.execute("SELECT count(*) FROM unlisted").fetchone() == (1,)
    fleet[0].remove("part")
    fleet[0].remove("long")
    fleet[0].sign()
    assert Collecting(fleet[0]).look()
    for _ in range(3):
        advance(fleet[0])
        logs = fleet[0].log()
        removal = next(i for i, one in enumerate(logs) if one not in fleet[1].log())
        fleet[1].move("long", "renamed") if "long" in fleet[1].names() else None
        fleet[1].sign()
        fleet[1].receive(logs[removal:])
        while advance(fleet[1]):
            pass
        fleet.send(1, 0)
    assert pack in fleet.clouds.packs
    fleet.meet()
    for device in fleet.devices:
        device.rig.room.drop_all()
        assert device.read("renamed") == LONG


def test_a_new_device_counts(fleet: Fleet) -> None:
    pack = retire(fleet)
    advance(fleet[0])
    fleet.send(0, 1)
    newcomer = Fleet(3)[2]
    with fleet[1].rig.fs.state.transaction():
        fleet[1].rig.sharing.membership.admit(newcomer.member)
    while advance(fleet[1]):
        pass
    fleet.send(1, 0)
    while advance(fleet[0]):
        pass
    assert pack in fleet.clouds.packs
    newcomer.rig.abandon()


@pytest.mark.parametrize("steps", range(4))
def test_a_crash_between_two_steps(fleet: Fleet, steps: int) -> None:
    pack = retire(fleet)
    fleet[0].rig.commit()
    for step in range(8):
        device = fleet[step % 2]
        Collecting(device).step()
        if step % 4 == steps:
            device.rig = device.rig.crashed()
        else:
            Collecting(device).dispose()
        fleet.send(step % 2, 1 - step % 2)
    for _ in range(3):
        for device in fleet.devices:
            while advance(device):
                pass
        fleet.meet()
    assert pack not in fleet.clouds.packs
    for device in fleet.devices:
        device.rig.room.drop_all()
        assert device.read("old") == OLD


def test_a_device_that_was_restored_brings_back_what_it_still_shows(fleet: Fleet) -> None:
    assert fleet[1].read("apart") == b"in another pack"
    backup = fleet[1].saved()
    pack = retire(fleet)
    for _ in range(3):
        for number in (0, 1):
            while advance(fleet[number]):
                pass
            fleet.send(number, 1 - number)
    assert pack not in fleet.clouds.packs
    seen = fleet[1].log()
    fleet[1].restore(backup)
    assert fleet[1].read("apart") == b"in another pack"  # what it has read stays on its disk
    fleet[1].move("apart", "renamed")
    fleet[1].sign()
    fleet[1].receive(seen)
    for _ in range(2):
        fleet.meet()
    assert fleet[0].names() == fleet[1].names() == ["kept", "old", "renamed"]
    for device in fleet.devices:
        device.rig.room.drop_all()
        assert device.read("renamed") == b"in another pack"


def test_what_is_needed_is_packed_anew_and_the_others_use_it(fleet: Fleet) -> None:
    """The other device, too, reads the chunk from the new pack before it agrees that the old one goes."""
    fleet[0].write("big", bytes(range(256)) * 1000)
    fleet[0].write("small", b"small")
    fleet.meet()
    pack = pack_of(fleet[0], b"small")
    fleet[0].remove("big")
    fleet.meet()
    collecting = Collecting(fleet[0])
    collecting.limits = GcLimits(least_dead=1)
    assert collecting.look() >= 1
    assert pack_of(fleet[0], b"small") != pack
    for _ in range(3):
        for number in (0, 1):
            while advance(fleet[number]):
                pass
            fleet.send(number, 1 - number)
    assert pack not in fleet.clouds.packs
    for device in fleet.devices:
        assert pack_of(device, b"small") in fleet.clouds.packs
        device.rig.room.drop_all()
        assert device.read("small") == b"small"


def test_nobody_waits_for_those_who_wait_themselves() -> None:
    """What a member may not say yet, for another one is silent, nobody waits for."""
    one, other, ghost = (bytes([number]) * 16 for number in range(3))
    proposal = Proposal(1, (bytes(32),))
    proposed = {one: [proposal.encode()]}

    def awaited(*stages: Stage) -> list[bytes]:
        said = {
            device: [Answers({proposal.id_for(one): Answer(stage)}).encode()]
            for device, stage in zip((one, other, ghost), stages, strict=False)
        }
        [listed] = (book := Book((one, other, ghost), proposed, said)).lists
        return book.awaited(listed.id)

    promised, agreed = Stage.PROMISED, Stage.AGREED
    assert awaited() == [one, other, ghost]
    assert awaited(promised, promised) == [ghost]
    assert awaited(promised, agreed) == [ghost]
    assert awaited(promised, agreed, promised) == [one, ghost]
    assert awaited(agreed, agreed, agreed) == []
