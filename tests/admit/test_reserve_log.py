"""The log of a reserve: one machine after the other, and two at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hybrisfs.admit.reserve_log import ReserveLog
from hybrisfs.environment import SYSTEM
from hybrisfs.members.members import Member, member_key
from sync import DeviceKey, LogSegment, OneKey, decode_head, decode_segment, segment_name
from tests.recovery.support import ADA, BOB, SECRET, STRANGER, VOLUME

KEYS = OneKey(b"k" * 32)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[ReserveLog]]:
    """The reserve's log on three machines that know nothing of it yet."""
    with ExitStack() as stack:
        found = []
        for number in range(3):
            (tmp_path / str(number)).mkdir()
            log = ReserveLog(tmp_path / str(number), VOLUME, SECRET.reserve, KEYS, SYSTEM)
            stack.callback(log.close)
            found.append(log)
        yield found


def admitted(log: ReserveLog, device: DeviceKey) -> LogSegment:
    name, data = log.admit(Member(device.public, "new"))
    segment = decode_segment(data, name, VOLUME, KEYS)
    [update] = segment.updates
    assert update.header.verify(SECRET.reserve.public)
    [(key, value)] = update.writes
    assert key == member_key(device.device_id) and Member.decode(value or b"") == Member(device.public, "new")
    return segment


def test_one_after_the_other_is_one_chain_and_no_fork(logs: list[ReserveLog]) -> None:
    first = admitted(logs[0], ADA)
    assert logs[1].take([first]) and not logs[1].take([first])
    second = admitted(logs[1], BOB)
    assert first.previous is None
    assert second.previous is not None
    name, data = logs[1].head()
    head = decode_head(data, VOLUME, SECRET.reserve.public, KEYS)
    assert name == f"heads/{SECRET.kit.hex()}"
    assert [tip.hash for tip in head.own] == [second.updates[0].header.hash]
    assert head.on_clouds is not None and (head.on_clouds.segments, head.on_clouds.last) == (2, 2)
    assert head.offline, "nobody is to wait for it"
    assert logs[2].take([second, first]), "the order in which they are listed does not matter"


def test_at_the_same_moment_both_are_let_in_and_the_head_names_both(logs: list[ReserveLog]) -> None:
    ours, theirs = admitted(logs[0], ADA), admitted(logs[1], BOB)
    assert logs[0].take([theirs])
    head = decode_head(logs[0].head()[1], VOLUME, SECRET.reserve.public, KEYS)
    assert {tip.hash for tip in head.own} == {one.updates[0].header.hash for one in (ours, theirs)}
    assert head.own[0].hash == ours.updates[0].header.hash, "the own chain goes on from its own update"
    assert logs[2].take([ours, theirs])
    third = admitted(logs[2], STRANGER)
    assert third.updates[0].header.clock == 2
    after = decode_head(logs[2].head()[1], VOLUME, SECRET.reserve.public, KEYS)
    assert after.own[0].hash == third.updates[0].header.hash
    assert after.on_clouds is not None
    newest = segment_name(SECRET.kit, after.on_clouds.newest)
    assert newest.startswith(f"log/{SECRET.kit.hex()}/")


def test_what_the_reserve_did_not_sign_is_not_taken(logs: list[ReserveLog], tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = ReserveLog(tmp_path / "foreign", VOLUME, STRANGER, KEYS, SYSTEM)
    name, data = foreign.admit(Member(STRANGER.public, "stranger"))
    foreign.close()
    assert not logs[0].take([decode_segment(data, name, VOLUME, KEYS)])
