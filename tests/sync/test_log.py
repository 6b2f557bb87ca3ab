"""The acceptance rule, clause by clause. Each forged update is signed by its writer's true key."""

from __future__ import annotations

import pytest

from sync.codec import ZERO_HASH
from sync.errors import LimitError, LogStoreError, NotAMemberError
from sync.identity import DeviceKey, Members
from sync.log import LogState
from sync.log_tree import LogLimits, branch_id
from sync.outcome import Accepted, Duplicate, Reason, Refused, verify_fork_proof
from sync.update import SignedUpdate, UpdateStamp
from sync.vector import MAX_WRITERS, Rename, VersionVector
from tests.sync.support import (
    KEYS,
    MEMBERS,
    NOON,
    STRANGER,
    VOLUME,
    Device,
    MemoryLog,
    flip,
    forge,
)

A, B, C, D = (key.device_id for key in KEYS)


class Scene:
    """Device a wrote a1 and a2; b accepted them and wrote b3. c has accepted a1 and a2 and b3 next."""

    def __init__(self) -> None:
        self.a, self.b, self.c = (Device(key) for key in KEYS[:3])
        self.a1, self.a2 = self.a.write(), self.a.write()
        self.b.receive_all([self.a1, self.a2])
        self.b3 = self.b.write()
        self.c.receive_all([self.a1, self.a2])


def refused(device: Device, update: SignedUpdate) -> Refused:
    """Offer an update that must be refused, and require that nothing changed by it."""
    before = device.facts()
    outcome = device.receive(update)
    assert isinstance(outcome, Refused), outcome
    assert device.facts() == before
    return outcome


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_a_correct_device_writes(scene: Scene) -> None:
    header = scene.b3.header
    assert (header.writer, header.clock, header.prev_clock, header.prev) == (B, 3, 0, ZERO_HASH)
    assert header.deps == (scene.a2.stamp,)
    assert header.history == scene.a.state.history()
    b4 = scene.b.write()
    assert (b4.header.deps, b4.header.prev) == ((), scene.b3.hash), "only what changed since the last update"


def test_accepted_updates_carry_their_full_vector(scene: Scene) -> None:
    outcome = scene.c.receive(scene.b3)
    assert isinstance(outcome, Accepted)
    assert outcome.dependencies == VersionVector({A: 2})
    assert scene.c.state.vector == VersionVector({A: 2, B: 3})
    b4 = scene.b.write()
    outcome = scene.c.receive(b4)
    assert isinstance(outcome, Accepted)
    assert outcome.dependencies == VersionVector({A: 2, B: 3})


def test_a_duplicate_changes_nothing(scene: Scene) -> None:
    before = scene.c.facts()
    assert isinstance(scene.c.receive(scene.a1), Duplicate)
    assert isinstance(scene.c.receive(scene.a2), Duplicate)
    assert scene.c.facts() == before


def test_foreign_volume(scene: Scene) -> None:
    assert refused(scene.c, forge(scene.b3, KEYS[1], volume=bytes(16))).reason is Reason.FOREIGN_VOLUME


def test_a_stranger(scene: Scene) -> None:
    assert refused(scene.c, forge(scene.b3, STRANGER)).reason is Reason.NOT_A_MEMBER


def test_a_bad_signature(scene: Scene) -> None:
    data, end = scene.b3.data, len(scene.b3.header.data)
    altered = SignedUpdate(data, scene.b3.header, scene.b3.writes)
    for bit in (0, 100, 511):
        broken = flip(data[end - 64 : end], bit)
        altered = SignedUpdate(data[: end - 64] + broken + data[end:], scene.b3.header, scene.b3.writes)
        assert refused(scene.c, altered).reason is Reason.BAD_SIGNATURE


def test_omitted_previous_update(scene: Scene) -> None:
    scene.c.receive_all([scene.b3])
    b4, b5 = scene.b.write(), scene.b.write()
    outcome = refused(scene.c, b5)
    assert (outcome.reason, outcome.missing, outcome.retryable) == (Reason.MISSING_PREVIOUS, b4.stamp, True)
    scene.c.receive_all([b4, b5])


def test_omitted_dependency_is_awaited(scene: Scene) -> None:
    late = Device(KEYS[3])
    outcome = refused(late, scene.b3)
    assert (outcome.reason, outcome.missing, outcome.retryable) == (
        Reason.MISSING_DEPENDENCY,
        scene.a2.stamp,
        True,
    )
    late.receive_all([scene.a1, scene.a2, scene.b3])


def test_a_dependency_on_an_update_that_never_was(scene: Scene) -> None:
    never = UpdateStamp(D, 2, bytes(16))
    outcome = refused(scene.c, forge(scene.b3, KEYS[1], deps=tuple(sorted([scene.a2.stamp, never]))))
    assert (outcome.reason, outcome.missing) == (Reason.MISSING_DEPENDENCY, never)


@pytest.mark.parametrize("change", [{"clock": 1}, {"device": D}])
def test_a_dependency_under_a_false_name(scene: Scene, change: dict[str, object]) -> None:
    lie = scene.a2.stamp._replace(**change)  # type: ignore[arg-type]
    outcome = refused(scene.c, forge(scene.b3, KEYS[1], deps=(lie,)))
    assert (outcome.reason, outcome.retryable) == (Reason.FALSE_NAME, False)


def test_prev_is_an_update_of_the_writer(scene: Scene) -> None:
    lie = forge(scene.b3, KEYS[1], prev=scene.a2.hash, prev_clock=2)
    assert refused(scene.c, lie).reason is Reason.FALSE_NAME


@pytest.mark.parametrize("clock", [1, 2])
def test_a_dependency_that_goes_back_in_time(scene: Scene, clock: int) -> None:
    scene.c.receive_all([scene.b3])
    stale = scene.c.order[clock - 1].stamp
    outcome = refused(scene.c, forge(scene.b.write(), KEYS[1], deps=(stale,)))
    assert (outcome.reason, outcome.retryable) == (Reason.STALE_DEPENDENCY, False)


def test_a_vector_that_hides_an_indirect_cause(scene: Scene) -> None:
    """c says that it depends on b3 but not on a2, on which b3 depends; its history and clock fit that."""
    scene.c.receive_all([scene.b3])
    honest = Device(KEYS[2]).write()
    hiding = VersionVector({B: 3})
    lie = forge(honest, KEYS[2], clock=4, deps=(scene.b3.stamp,), history=scene.c.history_at(hiding))
    outcome = refused(scene.b, lie)
    assert (outcome.reason, outcome.retryable) == (Reason.OMITTED_DEPENDENCY, False)


def test_a_receiver_that_is_ahead_of_the_writer_decides_alike(scene: Scene) -> None:
    """The update's causes are no longer the newest of their writers here."""
    hiding = VersionVector({B: 3})
    lie = forge(
        Device(KEYS[2]).write(), KEYS[2], clock=4, deps=(scene.b3.stamp,), history=scene.b.history_at(hiding)
    )
    truth = Device(KEYS[3])
    truth.receive_all([scene.a1, scene.a2, scene.b3])
    d4 = truth.write()
    scene.b.write()
    scene.a.receive_all(scene.b.order[2:])
    scene.a.write()
    assert refused(scene.a, lie).reason is Reason.OMITTED_DEPENDENCY
    scene.a.receive_all([d4])


@pytest.mark.parametrize("clock", [1, 2, 4, 1 << 40])
def test_the_clock_is_one_more_than_that_of_the_causes(scene: Scene, clock: int) -> None:
    outcome = refused(scene.c, forge(scene.b3, KEYS[1], clock=clock))
    assert (outcome.reason, outcome.retryable) == (Reason.WRONG_CLOCK, False)


def test_prev_clock_is_that_of_prev(scene: Scene) -> None:
    scene.c.receive_all([scene.b3])
    assert refused(scene.c, forge(scene.b.write(), KEYS[1], prev_clock=2)).reason is Reason.FALSE_NAME


def test_another_history(scene: Scene) -> None:
    outcome = refused(scene.c, forge(scene.b3, KEYS[1], history=bytes(32)))
    assert (outcome.reason, outcome.retryable) == (Reason.WRONG_HISTORY, False)


def test_an_update_that_saw_the_other_branch_of_a_fork(scene: Scene) -> None:
    """Depot 4.2: N1's updates that depend on u1 do not pass at N2, which accepted u1'."""
    forked = scene.a.clone()
    a3, other = scene.a.write((b"k", b"1")), forked.write((b"k", b"2"))
    scene.b.receive_all([a3])
    scene.c.receive_all([scene.b3, other])
    outcome = refused(scene.c, scene.b.write())
    assert (outcome.reason, outcome.missing) == (Reason.MISSING_DEPENDENCY, a3.stamp)


def test_a_fork_is_joined_and_proved(scene: Scene) -> None:
    twin = scene.a.clone()
    theirs, ours = twin.write((b"k", b"1")), scene.a.write((b"k", b"2"))
    scene.c.receive_all([ours])
    outcome = scene.c.receive(theirs)
    assert isinstance(outcome, Accepted) and outcome.proof
    assert verify_fork_proof(outcome.proof, VOLUME, MEMBERS) == A
    one, other = branch_id(A, ours.hash), branch_id(A, theirs.hash)
    assert outcome.branch == other and outcome.renames == (Rename(A, 2, one),)
    assert outcome.dependencies == VersionVector({A: 2})
    assert scene.c.state.vector == VersionVector({A: 2, one: 3, other: 3})
    other_way = twin.receive(ours)
    assert isinstance(other_way, Accepted) and other_way.proof == outcome.proof
    assert twin.facts() == scene.c.facts()
    scene.c.receive_all([scene.b3])


def test_who_knows_of_a_fork_understands_who_does_not(scene: Scene) -> None:
    twin = scene.a.clone()
    scene.b.receive_all([scene.a.write()])
    b4 = scene.b.write()
    scene.c.receive_all([twin.write((b"k", b"2")), *scene.a.order[2:], scene.b3])
    outcome = scene.c.receive(b4)
    assert isinstance(outcome, Accepted)
    assert outcome.dependencies == VersionVector({A: 2, branch_id(A, scene.a.order[2].hash): 3, B: 3})
    c5 = scene.c.write()
    newest = (twin.order[2], scene.a.order[2], b4)
    assert c5.header.deps == tuple(sorted(one.stamp for one in newest)), "the fork point is implied"
    scene.b.receive_all([twin.order[2], c5])
    assert scene.b.facts() == scene.c.facts()


def test_two_first_updates_are_a_fork(scene: Scene) -> None:
    other = Device(KEYS[0]).write((b"k", b"other"))
    outcome = scene.c.receive(other)
    assert isinstance(outcome, Accepted) and outcome.proof
    assert verify_fork_proof(outcome.proof, VOLUME, MEMBERS) == A
    assert outcome.renames == (Rename(A, 0, branch_id(A, scene.a1.hash)),)
    assert scene.c.state.vector[A] == 0
    scene.c.receive_all([scene.b3])


def test_a_fork_below_a_fork_names_everything_above_it_anew(scene: Scene) -> None:
    late, early = scene.a.clone(), Device(KEYS[0])
    early.receive_all([scene.a1])
    scene.c.receive_all([scene.a.write((b"k", b"1")), late.write((b"k", b"2"))])
    outcome = scene.c.receive(early.write((b"k", b"3")))
    assert isinstance(outcome, Accepted)
    upper = branch_id(A, scene.a2.hash)
    assert {rename.new for rename in outcome.renames} == {
        upper,
        branch_id(upper, scene.a.order[2].hash),
        branch_id(upper, late.order[2].hash),
    }
    straight = Device(KEYS[3])
    straight.receive_all([scene.a1, *early.order[1:], scene.a2, late.order[2], scene.a.order[2]])
    assert straight.facts() == scene.c.facts()


def test_a_fork_that_depends_on_its_other_branch(scene: Scene) -> None:
    """No correct device writes such, but all must name its causes alike."""
    a3 = scene.a.write()
    lie = forge(
        a3,
        KEYS[0],
        clock=4,
        prev_clock=1,
        prev=scene.a1.hash,
        deps=(a3.stamp,),
        history=scene.a.state.history(),
    )
    scene.c.receive_all([a3])
    outcome = scene.c.receive(lie)
    assert isinstance(outcome, Accepted)
    assert outcome.dependencies == VersionVector({A: 1, branch_id(A, scene.a2.hash): 3})


def test_three_updates_after_one(scene: Scene) -> None:
    twins = [scene.a.clone() for _ in range(3)]
    written = [twin.write((b"k", b"%d" % number)) for number, twin in enumerate(twins)]
    scene.c.receive_all(written)
    assert scene.c.state.vector == VersionVector(
        {A: 2, **{branch_id(A, update.hash): 3 for update in written}}
    )


def test_a_restored_device_goes_on_where_it_wrote(scene: Scene) -> None:
    twin = scene.a.clone()
    ours, theirs = scene.a.write((b"k", b"1")), twin.write((b"k", b"2"))
    twin.receive_all([ours, scene.a.write()])
    for _ in range(2):
        written = twin.write()
        assert written.header.prev == theirs.hash
        theirs = written
        twin.restart()
    scene.a.receive_all([update for update in twin.order if update not in scene.a.order])
    assert scene.a.facts() == twin.facts()


def test_a_fork_far_back_is_a_fork(scene: Scene) -> None:
    twin = Device(KEYS[0])
    twin.receive_all([scene.a1])
    scene.c.receive_all([scene.a.write() for _ in range(5)])
    first, second = twin.write((b"k", b"other")), twin.write()
    assert refused(scene.c, second).reason is Reason.MISSING_PREVIOUS
    scene.c.receive_all([first, second])


def test_members_change(scene: Scene) -> None:
    scene.c.state.set_members(Members([KEYS[0].public]))
    assert refused(scene.c, scene.b3).reason is Reason.NOT_A_MEMBER
    scene.c.state.set_members(MEMBERS)
    scene.c.receive_all([scene.b3])


def test_branches_are_bounded(scene: Scene) -> None:
    narrow = Device(KEYS[2], limits=LogLimits(writers=2))
    narrow.receive_all(scene.c.order)
    narrow.receive_all([scene.a.write()])
    assert refused(narrow, scene.b3).reason is Reason.TOO_MANY_BRANCHES


def test_a_restored_device_that_has_not_written_catches_up(scene: Scene) -> None:
    restored = Device(KEYS[0])
    restored.receive_all([scene.a1, scene.a2])
    outcome = scene.b.receive(restored.write())
    assert isinstance(outcome, Accepted) and outcome.proof is None


def test_a_stranger_cannot_write() -> None:
    device = Device(STRANGER)
    with pytest.raises(NotAMemberError):
        device.write()
    assert device.state.vector == VersionVector()


def test_a_failed_write_changes_nothing(scene: Scene) -> None:
    before = scene.a.facts()
    with pytest.raises(ValueError):
        scene.a.state.next_update([(b"", b"x")], NOON, KEYS[0])
    assert scene.a.facts() == before


def test_a_store_that_lost_updates_is_reported(scene: Scene) -> None:
    scene.c.receive_all([scene.b3, scene.a.write()])
    scene.c.restart()
    scene.c.log.hash_of = lambda branch, clock: None  # type: ignore[method-assign]
    with pytest.raises(LogStoreError, match="lost update 2"):
        scene.c.receive(scene.b.write())
    fork = Device(KEYS[0]).write((b"k", b"other"))
    scene.c.log.successor_of = lambda branch, clock: None  # type: ignore[method-assign]
    with pytest.raises(LogStoreError, match="follows"):
        scene.c.receive(fork)


def test_the_number_of_members_is_bounded() -> None:
    crowd = Members(DeviceKey.from_seed(n.to_bytes(32, "big")).public for n in range(MAX_WRITERS + 1))
    with pytest.raises(LimitError):
        LogState(VOLUME, crowd, MemoryLog())
