"""Depot's invariant over random histories: correct devices converge, and nothing else gets in."""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from sync.outcome import Accepted, Duplicate, Refused
from sync.update import SignedUpdate, decode_signed
from sync.vector import VersionVector
from tests.sync.support import (
    KEYS,
    STRANGER,
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
            device.restart()
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
    assert all(device.facts() == devices[0].facts() for device in devices)
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
            before = observer.facts()
            outcome = observer.receive(update)
            if isinstance(outcome, Refused):
                assert outcome.retryable and outcome.missing is not None
                assert observer.log.find(outcome.missing.prefix) is None
                assert observer.facts() == before
                still.append(update)
            else:
                assert isinstance(outcome, Accepted)
        assert len(still) < len(waiting), "no progress"
        waiting = still
    for source in devices * 2:
        for target in devices:
            send(source, target, 1000)
    assert observer.facts() == devices[0].facts()
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
    before = observer.facts()
    if decodes(decode_signed, altered):
        assert isinstance(observer.state.accept(decode_signed(altered)), Refused)
    assert isinstance(observer.receive(forge(update, STRANGER)), Refused)
    assert observer.facts() == before
    assert isinstance(observer.receive(update), Accepted)


@given(steps, st.data())
def test_a_lying_member_is_refused(script: Script, data: st.DataObject) -> None:
    """A member signs an update whose dependencies, history or clock are not those it really had."""
    devices = play([*script, ("write", 1, 0, 0), ("send", 1, 0, 1000), ("write", 0, 0, 0)])
    device = devices[0]
    observer = Device(KEYS[3])
    observer.receive_all(device.order[:-1])
    true = as_update(device.order[-1])
    index = data.draw(st.integers(0, len(true.deps) - 1))
    stamp = true.deps[index]
    without = true.deps[:index] + true.deps[index + 1 :]
    others = [update.stamp for update in device.order[:-1]] + [stamp._replace(clock=stamp.clock + 1)]
    other = data.draw(
        st.sampled_from([one for one in others if one not in true.deps] or [stamp._replace(clock=99)])
    )
    lies: list[dict[str, object]] = [
        {"clock": data.draw(st.integers(1, 1 << 62).filter(lambda clock: clock != true.clock))},
        {"history": flip(true.history, data.draw(st.integers(0, 255)))},
        {"deps": without},
        {"deps": tuple(sorted({*without, other}))},
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
        deps=tuple(sorted(observer.log.rows[stamp][0].stamp for stamp in claimed.items())),
        clock=claimed.highest + 1,
        history=observer.history_at(claimed),
    )
    closed = all(claimed.covers(observer.log.rows[stamp][1]) for stamp in claimed.items())
    assert isinstance(observer.receive(lie), Accepted if closed else Refused)
