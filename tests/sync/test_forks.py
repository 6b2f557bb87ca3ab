"""Forks: whatever is restored, copied and exchanged in whatever order, all who know the same agree on
everything."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.outcome import Accepted, Duplicate, Outcome, Refused, verify_fork_proof
from sync.update import SignedUpdate, Write, decode_signed
from sync.vector import VersionVector
from tests.sync.fjc import Execution, Observed, Operation, Read, Wrote
from tests.sync.support import KEYS, MEMBERS, VOLUME, Device, forge

Script: TypeAlias = list[tuple[str, int, int, int]]
MAX_INSTANCES = 7

steps: st.SearchStrategy[Script] = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "send", "send", "restore", "restart"]),
        st.integers(0, MAX_INSTANCES - 1),
        st.integers(0, MAX_INSTANCES - 1),
        st.integers(0, 8),
    ),
    max_size=40,
)


class Node(Device):
    """A device with a register per key, that notes what it does. Its copies and its restored selves are
    others."""

    def __init__(self, key_number: int) -> None:
        super().__init__(KEYS[key_number])
        self.key_number = key_number
        self.operations: list[Operation] = []
        self.registers: dict[bytes, dict[tuple[bytes, int], bytes]] = {}
        self.proofs = 0

    def write(self, *writes: Write) -> SignedUpdate:
        update = super().write(*writes)
        self.operations.append(Wrote(update))
        self.apply(Accepted(update, *self.stored(update)))
        return update

    def receive(self, update: SignedUpdate) -> Outcome:
        outcome = super().receive(update)
        if isinstance(outcome, Accepted):
            self.operations.append(Observed(outcome.update))
            self.apply(outcome)
            if outcome.proof:
                self.proofs += 1
                assert verify_fork_proof(outcome.proof, VOLUME, MEMBERS) == update.header.writer
        return outcome

    def stored(self, update: SignedUpdate) -> tuple[bytes, VersionVector]:
        known = self.log.find(update.hash[:16])
        assert known is not None
        return known.branch, known.dependencies

    def apply(self, accepted: Accepted) -> None:
        """Keep the values that are not superseded, by the rule that `Accepted.dependencies` tells."""
        moved = {rename.old: rename for rename in accepted.renames}
        for values in self.registers.values():
            for branch, clock in list(values):
                if branch in moved and clock > moved[branch].above:
                    values[moved[branch].new, clock] = values.pop((branch, clock))
        for key, _ in accepted.update.writes:
            values = self.registers.setdefault(key, {})
            for branch, clock in list(values):
                if accepted.dependencies[branch] >= clock:
                    del values[branch, clock]
            values[accepted.branch, accepted.update.header.clock] = accepted.update.hash

    def read_all(self) -> None:
        for key, values in self.registers.items():
            self.operations.append(Read(key, frozenset(values.values())))

    def restored(self, count: int) -> Node:
        """The device as it was when it had seen `count` updates."""
        twin = Node(self.key_number)
        twin.receive_all(self.order[:count])
        own = [one.update for one in self.operations[:count] if isinstance(one, Wrote)]
        twin.signed = own[-1] if own else None
        twin.restart()
        return twin


def send(source: Device, target: Device, most: int = 1000) -> None:
    known = {update.hash for update in target.order}
    target.receive_all([update for update in source.order if update.hash not in known][:most])


def play(script: Script) -> list[Node]:
    nodes = [Node(number) for number in range(3)]
    for number, (action, one, two, count) in enumerate(script):
        node, other = nodes[one % len(nodes)], nodes[two % len(nodes)]
        if action == "write":
            node.write((b"key %d" % (count % 3), b"%d" % number))
        elif action == "send":
            send(node, other, count)
        elif action == "restart":
            node.restart()
        elif len(nodes) < MAX_INSTANCES:
            nodes.append(node.restored(len(node.order) * count // 8))
    return nodes


def heal(nodes: list[Node]) -> None:
    for source in nodes * 2:
        for target in nodes:
            send(source, target)


@given(steps)
def test_all_who_know_the_same_agree(script: Script) -> None:
    nodes = play(script)
    heal(nodes)
    for node in nodes:
        assert node.facts() == nodes[0].facts()
        assert node.registers == nodes[0].registers
        node.restart()
        assert node.facts() == nodes[0].facts()


@given(steps, st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_branches(script: Script, random: Random) -> None:
    nodes = play(script)
    heal(nodes)
    observer = Node(3)
    waiting = list(nodes[0].order)
    while waiting:
        random.shuffle(waiting)
        still: list[SignedUpdate] = []
        for update in waiting:
            outcome = observer.receive(update)
            if isinstance(outcome, Refused):
                assert outcome.missing is not None
                assert observer.log.find(outcome.missing.prefix) is None
                still.append(update)
            else:
                assert isinstance(outcome, Accepted)
        assert len(still) < len(waiting), "no progress"
        waiting = still
    assert observer.facts() == nodes[0].facts()
    assert observer.registers == nodes[0].registers
    assert all(isinstance(observer.receive(update), Duplicate) for update in nodes[0].order)


@given(steps)
def test_vectors_tell_causes_exactly(script: Script) -> None:
    """u's full dependency vector covers v's stamp exactly if u's writer had accepted v, whoever forked."""
    nodes = play(script)
    past: dict[bytes, set[bytes]] = {}
    for node in nodes:
        seen: set[bytes] = set()
        for operation in node.operations:
            if isinstance(operation, Wrote):
                past[operation.update.hash] = set(seen)
            if not isinstance(operation, Read):
                seen.add(operation.update.hash)
    heal(nodes)
    rows = nodes[0].log.rows
    for update, vector in rows.values():
        covered = {other.hash for (branch, clock), (other, _) in rows.items() if vector[branch] >= clock}
        assert covered == past[update.hash]


@given(steps)
def test_fork_join_causal_consistency(script: Script) -> None:
    """Every instance of a device behaves correctly by itself, and so is a correct node; devices fork."""
    nodes = play(script)
    for node in nodes:
        node.read_all()
    heal(nodes)
    for node in nodes:
        node.read_all()
    execution = Execution({f"node {number}": node.operations for number, node in enumerate(nodes)})
    assert execution.violations() == []
    assert execution.differences() == []


@given(steps)
def test_every_fork_is_proved(script: Script) -> None:
    nodes = play(script)
    heal(nodes)
    followers = Counter((update.header.writer, update.header.prev) for update in nodes[0].order)
    observer = Node(3)
    observer.receive_all(nodes[0].order)
    assert observer.proofs == sum(count - 1 for count in followers.values())


def checked(*operations: Operation) -> list[str]:
    return Execution({"node": operations}).violations()


@pytest.fixture
def written() -> list[SignedUpdate]:
    node, other = Node(0), Node(1)
    first = node.write((b"k", b"1"))
    send(node, other)
    return [first, node.write((b"k", b"2")), other.write((b"k", b"3"))]


def test_the_checker_finds_what_is_wrong(written: list[SignedUpdate]) -> None:
    first, second, third = written
    latest = Read(b"k", frozenset([second.hash, third.hash]))
    assert checked(Observed(first), Observed(third), Observed(second), latest) == []
    assert "before one that it depends on" in checked(Observed(second), Observed(first))[0]
    assert "nobody observed" in checked(Observed(third))[0]
    assert (
        "other writes"
        in checked(Observed(first), Observed(second), Observed(third), Read(b"k", frozenset()))[0]
    )
    stale = Read(b"k", frozenset([first.hash]))
    assert "other writes" in checked(Observed(first), Observed(second), stale)[0]
    assert "does not state all" in checked(Wrote(first), Observed(third), Wrote(second))[0]
    assert "does not state all" in checked(Wrote(first), Observed(second), Wrote(third))[0]
    half = Execution({"one": [Observed(first)], "two": [Observed(first), Observed(second)]})
    assert half.violations() == [] and half.differences() == ["one misses 1 updates"]


def test_a_member_cannot_hide_a_branch_that_its_update_depends_on() -> None:
    """Its deps name one branch of a fork only, its history says both."""
    writer, twin, liar = Node(0), Node(0), Node(1)
    writer.write((b"k", b"1"))
    twin.write((b"k", b"2"))
    send(writer, liar)
    send(twin, liar)
    true = liar.write()
    assert len(true.header.deps) == 2
    lie = forge(true, KEYS[1], deps=true.header.deps[:1])
    observer = Node(2)
    send(writer, observer)
    send(twin, observer)
    assert isinstance(observer.receive(lie), Refused)
    assert isinstance(observer.receive(decode_signed(true.data)), Accepted)
