"""Registers that are read before anything is trusted: what up to f clouds that lie, and a writer that was
removed, can do to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final, TypeVar

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.environment import Environment
from hybrisfs.quorums.consensus import KEPT_SECONDS
from hybrisfs.quorums.contact import Candidate, ContactRegister, Sight, Superseding, self_proving
from hybrisfs.quorums.names import RegisterNames, Version
from hybrisfs.quorums.rounds import Answer, Ask, Protocol, Round
from hybrisfs.quorums.thresholds import Standing, first_contact
from tests.quorums.schedule import LIES, Cloud

T = TypeVar("T")

NAMES: Final = RegisterNames("kits/some/", b"n" * 32)
FORMER: Final = "recovery/some"
MEMBER, REMOVED = "member", "removed"


def made(clock: int, writer: str = MEMBER) -> bytes:
    return f"{clock} {writer} says so".encode()


def version_of(data: bytes) -> Version | None:
    """That of an object which anybody made that ever belonged to the volume."""
    clock, _, _ = data.partition(b" ")
    if not data.endswith(b" says so"):
        return None
    return self_proving(int(clock), blake3(data).digest(), blake3(b"v" + data).digest(), len(data))


def version_by_members(data: bytes) -> Version | None:
    return None if REMOVED.encode() in data else version_of(data)


def sure(data: bytes) -> Version:
    version = version_of(data)
    assert version is not None
    return version


def register(*, knows_members: bool = True, limit: int = 100) -> ContactRegister:
    return ContactRegister(NAMES, FORMER, limit, version_by_members if knows_members else version_of)


def carry_out(protocol: Protocol[T], clouds: Sequence[Cloud], unreachable: Iterable[int] = ()) -> T:
    """Run a protocol; clouds that are *unreachable* fail now."""
    try:
        steps: Any = next(protocol)
        while True:
            answers = [
                {cloud: _answer(clouds[cloud], ask, cloud in unreachable) for cloud, ask in one.asks.items()}
                for one in steps
            ]
            assert all(isinstance(one, Round) and one.forgiving for one in steps)
            steps = protocol.send(answers)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _answer(cloud: Cloud, ask: Ask, unreachable: bool) -> Answer:
    if unreachable or cloud.lie == "is silent":
        return Answer(fault="unreadable", reason="no answer")
    return cloud.answer(ask)


def honest(count: int) -> list[Cloud]:
    return [Cloud(Random(0)) for _ in range(count)]


def look(clouds: Sequence[Cloud], *, knows_members: bool = True) -> Sight:
    return carry_out(register(knows_members=knows_members).look(range(len(clouds))), clouds)


def write(
    clouds: Sequence[Cloud],
    data: bytes,
    *,
    unreachable: Iterable[int] = (),
    superseding: Superseding | None = None,
    f: int = 1,
) -> list[str]:
    """What a device does that knows this to be the latest version."""
    one, version, everywhere = register(), sure(data), range(len(clouds))
    sight = carry_out(one.look(everywhere), clouds, unreachable)
    refused = carry_out(one.spread(sight, data, version, everywhere), clouds, unreachable)
    due = superseding is not None and superseding.is_due("some", version, sight, f)
    carry_out(one.clear(sight, version, everywhere, kept=not due), clouds, unreachable)
    return refused


def believed(sight: Sight, f: int) -> Candidate | None:
    """What a reader takes for true that knows nobody."""
    found = [
        one
        for one in sight.candidates
        if first_contact(f).classify(len(one.clouds)) is not Standing.INCOMPLETE
    ]
    return max(found, key=lambda one: one.version.time, default=None)


def kept(cloud: Cloud) -> set[bytes]:
    return {data for name, data in cloud.objects.items() if name.startswith(NAMES.prefix)}


def test_the_thresholds_are_those_of_pasis_when_silence_counts_among_the_lies() -> None:
    for f in range(6):
        thresholds = first_contact(f)
        assert (thresholds.least, thresholds.quorum) == (2 * f + 1, 2 * f + 1)
        standings = [thresholds.classify(holders) for holders in range(2 * f + 3)]
        assert standings == [
            *[Standing.INCOMPLETE] * (f + 1),
            *[Standing.REPAIRABLE] * f,
            *[Standing.COMPLETE] * 2,
        ]


def test_what_was_written_is_on_all_clouds_and_complete() -> None:
    clouds = honest(3)
    assert look(clouds).candidates == ()
    assert write(clouds, made(5)) == []
    assert look(clouds).candidates == (Candidate(sure(made(5)), made(5), frozenset(range(3))),)
    assert all(one.objects[FORMER] == made(5) and kept(one) == {made(5)} for one in clouds)


def test_the_object_of_programs_before_this_one_counts() -> None:
    clouds = honest(3)
    for cloud in clouds[:2]:
        cloud.put(FORMER, made(4))
    assert look(clouds).candidates == (Candidate(sure(made(4)), made(4), frozenset((0, 1))),)
    write(clouds, made(4))
    assert [kept(one) for one in clouds] == [{made(4)}] * 3


def test_a_version_is_put_where_it_was_lost_or_altered() -> None:
    clouds = honest(4)
    write(clouds, made(5))
    name = NAMES.of_version(sure(made(5)))
    clouds[0].delete(name)
    clouds[1].put(name, made(6)[: len(made(5))])
    clouds[2].delete(FORMER)
    sight = look(clouds)
    assert [sorted(shown.right) for shown in sight.clouds.values()].count([]) == 2
    assert sight.clouds[1].wrong == {sure(made(5))}
    write(clouds, made(5))
    assert all(one.objects == {name: made(5), FORMER: made(5)} for one in clouds)


def test_an_object_under_the_name_of_another_version_does_not_count() -> None:
    clouds = honest(3)
    for cloud in clouds:
        cloud.put(NAMES.of_version(sure(made(9))), made(5))
    assert look(clouds, knows_members=False).candidates == ()


def test_a_name_that_no_member_has_given_does_not_count() -> None:
    clouds = honest(3)
    foreign = RegisterNames(NAMES.prefix, b"?" * 32)
    for cloud in clouds:
        cloud.put(foreign.of_version(sure(made(9))), made(9))
    assert look(clouds, knows_members=False).candidates == ()


def test_a_version_larger_than_the_limit_is_not_asked_for() -> None:
    clouds = honest(3)
    write(clouds, made(5))
    one = register(limit=len(made(5)) - 1)
    for cloud in clouds:
        cloud.delete(FORMER)
    assert carry_out(one.look(range(3)), clouds).candidates == ()


def test_an_earlier_version_stays_until_a_later_one_has_been_complete_for_long_enough() -> None:
    clouds, now = honest(3), [0.0]
    superseding = Superseding(Environment(monotonic=lambda: now[0]))
    write(clouds, made(5), superseding=superseding)
    write(clouds, made(6), superseding=superseding, unreachable=[2])
    for _ in range(3):
        now[0] += 10 * KEPT_SECONDS
        write(clouds, made(6), superseding=superseding, unreachable=[2])
    assert [kept(one) for one in clouds] == [{made(5), made(6)}] * 2 + [{made(5)}], "two of three is too few"
    write(clouds, made(6), superseding=superseding)  # puts it there ...
    write(clouds, made(6), superseding=superseding)  # ... and sees it there for the first time
    now[0] += KEPT_SECONDS - 1
    write(clouds, made(6), superseding=superseding)
    assert [kept(one) for one in clouds] == [{made(5), made(6)}] * 3
    now[0] += 1
    write(clouds, made(6), superseding=superseding)
    assert [kept(one) for one in clouds] == [{made(6)}] * 3


def test_a_cloud_that_lacks_the_later_version_keeps_the_earlier_one() -> None:
    clouds, now = honest(4), [0.0]
    superseding = Superseding(Environment(monotonic=lambda: now[0]))
    write(clouds, made(5))
    for _ in range(2):
        write(clouds, made(6), superseding=superseding, unreachable=[3])
    now[0] += KEPT_SECONDS
    one, version = register(), sure(made(6))
    sight = look(clouds)
    assert superseding.is_due("some", version, sight, 1)
    carry_out(one.clear(sight, version, range(4), kept=False), clouds)
    assert [kept(one) for one in clouds] == [{made(6)}] * 3 + [{made(5)}]


def test_what_a_removed_writer_has_put_is_overwritten_at_once_also_where_nothing_may_be_deleted() -> None:
    clouds, forged = honest(3), made(1 << 50, REMOVED)
    write(clouds, made(5))
    for cloud in clouds:
        cloud.put(NAMES.of_version(sure(forged)), forged)
        cloud.put(FORMER, forged)
    taken = believed(look(clouds, knows_members=False), 1)
    assert taken is not None and taken.data == forged, "with the credentials of all clouds it can"
    sight, one = look(clouds), register()
    carry_out(one.spread(sight, made(5), sure(made(5)), range(3)), clouds)
    taken = believed(look(clouds, knows_members=False), 1)
    assert taken is not None and taken.data == made(5)
    carry_out(one.clear(sight, sure(made(5)), range(3), kept=True), clouds)
    assert [kept(one) for one in clouds] == [{made(5)}] * 3


def test_many_forged_names_on_clouds_that_lie_do_not_hide_the_version_that_most_have() -> None:
    clouds = honest(3)
    write(clouds, made(5))
    for cloud in clouds:
        cloud.delete(FORMER)
    for number in range(100):
        forged = made(1000 + number, REMOVED)
        clouds[0].put(NAMES.of_version(sure(forged)), forged)
    taken = believed(look(clouds, knows_members=False), 1)
    assert taken is not None and taken.data == made(5)


@pytest.mark.parametrize(("count", "f"), [(3, 1), (4, 1), (5, 2), (7, 2)])
@given(seed=st.integers(0, 1 << 32))
def test_who_knows_nobody_reads_what_is_complete_or_later_and_nothing_forged(
    count: int, f: int, seed: int
) -> None:
    chance, now = Random(seed), [0.0]
    clouds = [Cloud(chance) for _ in range(count)]
    liars = chance.sample(range(count), chance.randint(0, f))
    for number in liars:
        clouds[number].lie = chance.choice(LIES)
    superseding = Superseding(Environment(monotonic=lambda: now[0]))
    complete = clock = 0
    for _ in range(8):
        clock += chance.randint(0, 2) if clock else 1
        faulty = [] if chance.random() < 0.5 else chance.sample(range(count), chance.randint(1, count))
        refused = write(clouds, made(clock), superseding=superseding, unreachable=faulty, f=f)
        if not refused and not set(faulty).difference(liars):
            complete = max(complete, clock)
        if chance.random() < 0.3 and liars:
            forged = made(chance.randint(1, 99), REMOVED)
            for number in liars:
                for name in (NAMES.of_version(sure(forged)), FORMER):
                    clouds[number].objects[name] = clouds[number].past[name] = forged
        now[0] += chance.choice((0.0, KEPT_SECONDS / 2, 2 * KEPT_SECONDS))
        taken = believed(look(clouds, knows_members=False), f)
        if complete:
            assert taken is not None
            assert REMOVED.encode() not in taken.data and taken.version.time.number >= complete
