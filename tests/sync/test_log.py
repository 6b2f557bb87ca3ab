"""The acceptance rule, clause by clause. Each forged update is signed by its writer's true key."""

from __future__ import annotations

import pytest

from sync.errors import DecodeError, LimitError, LogStoreError, NotAMemberError
from sync.fork import verify_fork_proof
from sync.hashing import ZERO_HASH
from sync.identity import DeviceKey, Members
from sync.log import Accepted, Duplicate, Forked, LogState, Reason, Refused
from sync.update import SignedUpdate
from sync.vector import MAX_WRITERS, VersionVector
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
    before = device.state.encode()
    outcome = device.receive(update)
    assert isinstance(outcome, Refused), outcome
    assert device.state.encode() == before
    return outcome


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_a_correct_device_writes(scene: Scene) -> None:
    header = scene.b3.header
    assert (header.writer, header.clock, header.prev_clock, header.prev) == (B, 3, 0, ZERO_HASH)
    assert header.deps == ((A, 2),)
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
    before = scene.c.state.encode()
    assert isinstance(scene.c.receive(scene.a1), Duplicate)
    assert isinstance(scene.c.receive(scene.a2), Duplicate)
    assert scene.c.state.encode() == before


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
    assert (outcome.reason, outcome.missing, outcome.retryable) == (Reason.MISSING_PREVIOUS, (B, 4), True)
    scene.c.receive_all([b4, b5])


def test_omitted_dependency_is_awaited(scene: Scene) -> None:
    late = Device(KEYS[3])
    outcome = refused(late, scene.b3)
    assert (outcome.reason, outcome.missing, outcome.retryable) == (Reason.MISSING_DEPENDENCY, (A, 2), True)
    late.receive_all([scene.a1, scene.a2, scene.b3])


def test_a_dependency_on_an_update_that_never_was(scene: Scene) -> None:
    outcome = refused(scene.c, forge(scene.b3, KEYS[1], deps=((A, 2), (D, 2))))
    assert (outcome.reason, outcome.missing) == (Reason.MISSING_DEPENDENCY, (D, 2))


@pytest.mark.parametrize("clock", [1, 2])
def test_a_dependency_that_goes_back_in_time(scene: Scene, clock: int) -> None:
    scene.c.receive_all([scene.b3])
    outcome = refused(scene.c, forge(scene.b.write(), KEYS[1], deps=((A, clock),)))
    assert (outcome.reason, outcome.retryable) == (Reason.STALE_DEPENDENCY, False)


def test_a_vector_that_hides_an_indirect_cause(scene: Scene) -> None:
    """c says that it depends on b3 but not on a2, on which b3 depends; its history and clock fit that."""
    scene.c.receive_all([scene.b3])
    honest = Device(KEYS[2]).write()
    hiding = VersionVector({B: 3})
    lie = forge(honest, KEYS[2], clock=4, deps=((B, 3),), history=scene.c.history_at(hiding))
    outcome = refused(scene.b, lie)
    assert (outcome.reason, outcome.retryable) == (Reason.OMITTED_DEPENDENCY, False)


def test_a_receiver_that_is_ahead_of_the_writer_decides_alike(scene: Scene) -> None:
    """The update's causes are no longer the newest of their writers here."""
    hiding = VersionVector({B: 3})
    lie = forge(Device(KEYS[2]).write(), KEYS[2], clock=4, deps=((B, 3),), history=scene.b.history_at(hiding))
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
    assert refused(scene.c, forge(scene.b.write(), KEYS[1], prev_clock=2)).reason is Reason.WRONG_CLOCK


def test_another_history(scene: Scene) -> None:
    outcome = refused(scene.c, forge(scene.b3, KEYS[1], history=bytes(32)))
    assert (outcome.reason, outcome.retryable) == (Reason.WRONG_HISTORY, False)


def test_an_update_that_saw_the_other_branch_of_a_fork(scene: Scene) -> None:
    """Depot 4.2: N1's updates that depend on u1 do not pass at N2, which accepted u1'."""
    forked = scene.a.clone()
    a3, other = scene.a.write((b"k", b"1")), forked.write((b"k", b"2"))
    scene.b.receive_all([a3])
    scene.c.receive_all([scene.b3, other])
    assert refused(scene.c, scene.b.write()).reason is Reason.WRONG_HISTORY


def test_a_fork_is_proved(scene: Scene) -> None:
    twin = scene.a.clone()
    twin.write((b"k", b"1"))
    scene.a.write((b"k", b"2"))
    scene.c.receive_all(scene.a.order[2:])
    before = scene.c.state.encode()
    outcome = scene.c.receive(twin.order[-1])
    assert isinstance(outcome, Forked)
    assert verify_fork_proof(outcome.proof, VOLUME, MEMBERS) == A
    assert scene.c.state.encode() == before
    other_way = twin.receive(scene.a.order[-1])
    assert isinstance(other_way, Forked) and other_way.proof == outcome.proof
    scene.c.receive_all([scene.b3])


def test_two_first_updates_are_a_fork(scene: Scene) -> None:
    outcome = scene.c.receive(Device(KEYS[0]).write((b"k", b"other")))
    assert isinstance(outcome, Forked)
    assert verify_fork_proof(outcome.proof, VOLUME, MEMBERS) == A


def test_a_fork_far_back_is_a_fork(scene: Scene) -> None:
    twin = Device(KEYS[0])
    twin.receive_all([scene.a1])
    scene.c.receive_all([scene.a.write() for _ in range(5)])
    assert isinstance(scene.c.receive(twin.write((b"k", b"other"))), Forked)
    assert refused(scene.c, twin.write()).reason is Reason.MISSING_PREVIOUS, "the rest of that branch waits"


def test_a_restored_device_that_has_not_written_catches_up(scene: Scene) -> None:
    restored = Device(KEYS[0])
    restored.receive_all([scene.a1, scene.a2])
    scene.b.receive_all([restored.write()])


def test_a_stranger_cannot_write() -> None:
    device = Device(STRANGER)
    with pytest.raises(NotAMemberError):
        device.write()
    assert device.state.vector == VersionVector()


def test_a_failed_write_changes_nothing(scene: Scene) -> None:
    before = scene.a.state.encode()
    with pytest.raises(ValueError):
        scene.a.state.next_update([(b"", b"x")], NOON, KEYS[0])
    assert scene.a.state.encode() == before


def test_the_state_is_stored_and_loaded(scene: Scene) -> None:
    data = scene.b.state.encode()
    loaded = LogState.decode(data, MEMBERS, scene.b.log)
    assert (loaded.encode(), loaded.vector, loaded.volume) == (data, scene.b.state.vector, VOLUME)
    assert loaded.history() == scene.b.state.history()
    assert loaded.next_update([(b"k", None)], NOON, KEYS[1]).header.prev == scene.b3.hash


def test_a_stored_state_is_checked(scene: Scene) -> None:
    one = LogState(VOLUME, MEMBERS, MemoryLog())
    one.next_update([], NOON, KEYS[0])
    data = one.encode()
    assert data[22:39] == b"\x01" + A
    wrong = {
        "ascending": data[:22] + b"\x02" + data[23:] * 2,
        "follow": data[:39] + b"\x02" + data[40:],
        "after the end": data + b"\0",
        "ends early": data[:-1],
    }
    for reason, altered in wrong.items():
        with pytest.raises(DecodeError, match=reason):
            LogState.decode(altered, MEMBERS, MemoryLog())


def test_a_store_that_lost_updates_is_reported(scene: Scene) -> None:
    # Each lookup that must succeed: the hash of a cause, its vector, the successor of a fork's prev.
    scene.a.receive_all([scene.b3])
    scene.a.write()
    d = Device(KEYS[3])
    d.receive_all([scene.a1, scene.a2, scene.b3])
    d4 = d.write()
    scene.a.log.vector_of = lambda writer, clock: None  # type: ignore[method-assign]
    scene.b.write()
    scene.a.receive_all(scene.b.order[3:])
    with pytest.raises(LogStoreError, match="vector"):
        scene.a.state.accept(d4)
    twin = Device(KEYS[0])
    fork = twin.write((b"k", b"other"))
    scene.c.log.successor_of = lambda writer, clock: None  # type: ignore[method-assign]
    with pytest.raises(LogStoreError, match="follows"):
        scene.c.state.accept(fork)


def test_the_number_of_members_is_bounded() -> None:
    crowd = Members(DeviceKey.from_seed(n.to_bytes(32, "big")).public for n in range(MAX_WRITERS + 1))
    with pytest.raises(LimitError):
        LogState(VOLUME, crowd, MemoryLog())
