"""Depot's invariant over random histories: correct devices converge, and nothing else gets in."""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from sync.fork import verify_fork_proof
from sync.log import Accepted, Duplicate, Forked, LogState, Refused
from sync.update import SignedUpdate, decode_signed
from sync.vector import VersionVector
from tests.sync.support import (
    KEYS,
    MEMBERS,
    STRANGER,
    VOLUME,
    Device,
    as_update,
    decodes,
    flip,
    forge,
)

Script: TypeAlias = list[tuple[str, int, int, int]]

steps: st.SearchStrategy[Script] = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 0), st.integers(0, 0)),
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("restart"), st.integers(0, 2), st.integers(0, 0), st.integers(0, 0)),
    ),
    max_size=30,
)


def send(source: Device, target: Device, most: int) -> None:
    """Send what the target has not seen, in the order in which the source accepted it."""
    known = {update.hash for update in target.order}
    target.receive_all([update for update in source.order if update.hash not in known][:most])


def play(script: Script) -> list[Device]:
    devices = [Device(key) for key in KEYS[:3]]
    for action, one, two, most in script:
        device = devices[one]
        if action == "write":
            device.write((b"key", b"%d" % len(device.order)))
        elif action == "send":
            send(device, devices[two], most)
        else:
            device.state = LogState.decode(device.state.encode(), MEMBERS, device.log)
    return devices


def causes(devices: list[Device]) -> dict[tuple[bytes, int], set[tuple[bytes, int]]]:
    """For each update, all that its writer had accepted before: the true causal past."""
    past: dict[tuple[bytes, int], set[tuple[bytes, int]]] = {}
    for device in devices:
        seen: set[tuple[bytes, int]] = set()
        for update in device.order:
            stamp = (update.header.writer, update.header.clock)
            if update.header.writer == device.key.device_id:
                past[stamp] = set(seen)
            seen.add(stamp)
    return past


@given(steps)
def test_correct_devices_converge(script: Script) -> None:
    devices = play(script)
    for source in devices * 2:
        for target in devices:
            send(source, target, 1000)
    assert len({device.state.encode() for device in devices}) == 1
    assert len({device.state.history() for device in devices}) == 1


@given(steps)
def test_vectors_tell_causes_exactly(script: Script) -> None:
    """u's full dependency vector covers v's stamp exactly if u's writer had accepted v."""
    devices = play(script)
    past = causes(devices)
    for device in devices:
        for (writer, clock), (_, vector) in device.log.rows.items():
            assert past[writer, clock] == {(w, c) for w, c in past if vector[w] >= c}


@given(steps, st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_one_state(script: Script, random: Random) -> None:
    devices = play(script)
    everything = {update.hash: update for device in devices for update in device.order}
    waiting = list(everything.values())
    observer = Device(KEYS[3])
    while waiting:
        random.shuffle(waiting)
        still: list[SignedUpdate] = []
        for update in waiting:
            before = observer.state.encode()
            outcome = observer.receive(update)
            if isinstance(outcome, Refused):
                assert outcome.retryable and outcome.missing is not None
                assert observer.log.hash_of(*outcome.missing) is None
                assert observer.state.encode() == before
                still.append(update)
            else:
                assert isinstance(outcome, Accepted)
        assert len(still) < len(waiting), "no progress"
        waiting = still
    for source in devices * 2:
        for target in devices:
            send(source, target, 1000)
    assert observer.state.encode() == devices[0].state.encode()
    assert all(isinstance(observer.receive(update), Duplicate) for update in everything.values())


@given(steps, st.data())
def test_altered_updates_are_refused(script: Script, data: st.DataObject) -> None:
    """Any flipped bit, and any properly signed update of a stranger, whenever it arrives."""
    source = play([("write", 0, 0, 0), *script])[0]
    count = data.draw(st.integers(0, len(source.order) - 1))
    observer = Device(KEYS[3])
    observer.receive_all(source.order[:count])
    update = source.order[count]
    altered = flip(update.data, data.draw(st.integers(0, len(update.data) * 8 - 1)))
    before = observer.state.encode()
    if decodes(decode_signed, altered):
        assert isinstance(observer.state.accept(decode_signed(altered)), Refused)
    assert isinstance(observer.receive(forge(update, STRANGER)), Refused)
    assert observer.state.encode() == before
    assert isinstance(observer.receive(update), Accepted)


@given(steps, st.data())
def test_a_lying_member_is_refused(script: Script, data: st.DataObject) -> None:
    """A member signs an update whose dependencies, history or clock are not those it really had."""
    devices = play([*script, ("write", 1, 0, 0), ("send", 1, 0, 1000), ("write", 0, 0, 0)])
    device = devices[0]
    observer = Device(KEYS[3])
    observer.receive_all(device.order[:-1])
    true = as_update(device.order[-1])
    deps = dict(true.deps)
    writer = data.draw(st.sampled_from(sorted(deps)))
    other_clock = data.draw(st.integers(1, 60).filter(lambda clock: clock != deps[writer]))
    without = {other: clock for other, clock in deps.items() if other != writer}
    lies: list[dict[str, object]] = [
        {"clock": data.draw(st.integers(1, 1 << 62).filter(lambda clock: clock != true.clock))},
        {"history": flip(true.history, data.draw(st.integers(0, 255)))},
        {"deps": tuple(without.items())},
        {"deps": tuple((deps | {writer: other_clock}).items())},
    ]
    lie = forge(device.order[-1], device.key, **data.draw(st.sampled_from(lies)))
    assert isinstance(observer.receive(lie), Refused)
    observer.receive_all([device.order[-1]])


@given(steps, st.data())
def test_hidden_causes(script: Script, data: st.DataObject) -> None:
    """A member may hide what it saw only where nobody can know: the vector must be causally closed."""
    observer, liar = play(script)[0], Device(KEYS[3])
    stamps = sorted(observer.log.rows)
    claimed = VersionVector(data.draw(st.lists(st.sampled_from(stamps))) if stamps else ())
    lie = forge(
        liar.write(),
        liar.key,
        deps=tuple(claimed.items()),
        clock=claimed.highest + 1,
        history=observer.history_at(claimed),
    )
    closed = all(claimed.covers(observer.log.rows[stamp][1]) for stamp in claimed.items())
    assert isinstance(observer.receive(lie), Accepted if closed else Refused)


@given(steps, st.integers(0, 3))
def test_a_restored_backup_is_a_proven_fork(script: Script, more: int) -> None:
    """Two histories of one key: whoever has one refuses the other with a proof, and keeps working."""
    device, peer = play(script)[:2]
    twin = device.clone()
    device.write((b"key", b"original"))
    for _ in range(more):
        device.write()
    twin.write((b"key", b"restored"))
    send(device, peer, 1000)
    state = peer.state.encode()
    outcome = peer.receive(twin.order[-1])
    assert isinstance(outcome, Forked)
    assert verify_fork_proof(outcome.proof, VOLUME, MEMBERS) == device.key.device_id
    assert peer.state.encode() == state
    peer.write()
    send(peer, device, 1000)
    assert device.state.encode() == peer.state.encode()
