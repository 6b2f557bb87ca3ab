"""Packs that only versions need stay until these have been let go of."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hybrisfs.gc.limits import GcLimits
from hybrisfs.versions.retention import DAY_NS, DEFAULT_RETENTION, RetentionRule
from hybrisfs.versions.thinning import Thinner
from tests.gc.support import Collecting
from tests.merge.fleet import Device, Fleet
from tests.tree.rig import SMALL_BLOCKS, small_chunks
from tests.versions.support import SECOND, Clock, past_tree
from tests.versions.test_kept_versions import check_kept

LONG = random.Random(0).randbytes(23_000)  # of so many chunks that lists of them are chunks, too
OFF = RetentionRule(0, 0, 0, 0)


@pytest.fixture
def fleet(clock: Clock) -> Iterator[Fleet]:
    fleet = clock.fleet(2, GcLimits(least_dead=1), small_chunks(256), SMALL_BLOCKS)
    yield fleet
    fleet.discard()


def confer(fleet: Fleet, clock: Clock) -> None:
    """All look for packs that nobody needs, and answer each other until nobody has more to say."""
    clock.tick()  # a proposal is told from an earlier one by its time
    for device in fleet.devices:
        device.rig.commit()
        Collecting(device).look()
    for _ in range(6):
        fleet.meet()
        for device in fleet.devices:
            device.rig.commit()
            Collecting(device).step()
            Collecting(device).dispose()


def thin(device: Device, rule: RetentionRule, now: int) -> int:
    device.rig.commit()
    gone = Thinner(device.rig.fs, rule, Collecting(device).pages).thin(now)
    device.rig.commit()
    return gone


@pytest.mark.parametrize("content", [b"old", LONG])
def test_one_device_that_keeps_a_version_is_enough(fleet: Fleet, clock: Clock, content: bytes) -> None:
    one, two = fleet[0], fleet[1]
    one.write("file", content)
    one.write("removed", b"r" + content)
    fleet.meet()
    then = clock.tick()
    two.write("file", b"new")
    one.remove("removed")
    fleet.meet()
    packs = set(one.rig.clouds.packs)
    thin(one, OFF, clock.now)
    confer(fleet, clock)
    check_kept(two)
    two.rig.commit()
    two.rig.room.drop_all()
    assert past_tree(two, then)["file"].content == content
    assert past_tree(two, then)["removed"].content == b"r" + content
    thin(two, OFF, clock.now)
    for _ in range(3):
        confer(fleet, clock)
    assert packs - set(one.rig.clouds.packs)
    assert {path: entry.content for path, entry in one.tree().items()} == {"file": b"new"}


def test_a_conflict_copy_that_is_removed_is_kept_as_long_as_any_file(fleet: Fleet, clock: Clock) -> None:
    one, two = fleet[0], fleet[1]
    one.write("file", b"both's")
    fleet.meet()
    one.write("file", b"one's")
    one.sign()
    two.write("file", b"two's")
    two.receive(one.log())  # the edit that is not signed yet goes on beside, and yields the name
    fleet.meet()
    (copy,) = set(two.names()) - {"file"}
    then = clock.tick()
    one.remove(copy)
    fleet.meet()
    packs = set(one.rig.clouds.packs)
    for _ in range(3):
        confer(fleet, clock)
    check_kept(two)
    two.rig.room.drop_all()
    assert past_tree(two, then)[copy].content == b"two's"
    for device in fleet.devices:
        assert device.rig.db.rows.execute("SELECT count(*) FROM removal").fetchone() == (1,)
        thin(device, OFF, clock.now)
    for _ in range(3):
        confer(fleet, clock)
    # That of the copy is gone, and that of the file's first version.
    assert len(packs - set(one.rig.clouds.packs)) == 2
    assert one.tree() == two.tree() and one.names() == ["file"]


def test_thinning_follows_the_rule(fleet: Fleet, clock: Clock) -> None:
    one = fleet[0]
    moments = []
    for number in range(30):
        one.write("file", b"%d" % number)
        one.sign()
        moments.append(clock.tick(6 * 3600))
    thin(one, DEFAULT_RETENTION, clock.now)
    for _ in range(40):  # the rule's time follows by some hours each time
        thin(one, DEFAULT_RETENTION, clock.now)
    rungs = [rung for rung in DEFAULT_RETENTION.rungs(clock.now) if rung > moments[0]]
    assert len(rungs) == 7
    for rung in rungs:
        number = max(index for index, moment in enumerate(moments) if moment <= rung)
        assert past_tree(one, rung)["file"].content == b"%d" % number
    for number, moment in enumerate(moments[-4:], 26):
        assert past_tree(one, moment)["file"].content == b"%d" % number
    (left,) = one.rig.db.rows.execute(
        "SELECT count(*) FROM past WHERE key >= x'63' AND key < x'64'"
    ).fetchone()
    assert left == 7 + 3 - 1  # seven midnights and three within the last day, one of them both


def test_a_clock_years_ahead_drops_no_rung_and_nothing_at_once(fleet: Fleet, clock: Clock) -> None:
    one = fleet[0]
    one.write("file", b"old")
    one.sign()
    then = clock.tick(DAY_NS / SECOND)
    one.write("file", b"newer")
    one.sign()
    clock.tick()
    one.write("file", b"new")
    one.sign()
    assert thin(one, DEFAULT_RETENTION, clock.now + 3000 * DAY_NS) == 0
    for _ in range(30):
        thin(one, DEFAULT_RETENTION, clock.now + 3000 * DAY_NS)
    assert past_tree(one, then)["file"].content == b"old"
    assert thin(one, DEFAULT_RETENTION, 1) == 0


def test_room_is_bounded(fleet: Fleet, clock: Clock) -> None:
    one = fleet[0]
    moments = []
    for number in range(10):
        one.write("file", random.Random(number).randbytes(1000))
        one.sign()
        moments.append(clock.tick())
    for _ in range(3):
        thin(one, RetentionRule(room=3500), clock.now)
    assert past_tree(one, moments[8])["file"].content == random.Random(8).randbytes(1000)
    (left,) = one.rig.db.rows.execute(
        "SELECT count(*) FROM past WHERE key >= x'63' AND key < x'64'"
    ).fetchone()
    assert left == 3
