"""One machine and many links: who is answered, who is dropped, what ends it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from hybrisfs.environment import Environment
from hybrisfs.pairing.errors import PairingError
from hybrisfs.pairing.exchange import Dialogue, Exchange
from hybrisfs.pairing.protocol import State
from tests.pairing.support import NOW, OTHER, answer, granted, introduced, inviter, joiner


@dataclass(eq=False)
class Recorder:
    """A link that keeps what it is asked to do."""

    name: str = "test"
    sent: list[bytes] = field(default_factory=list)
    genuine: list[int] = field(default_factory=list)
    refused: list[bytes | None] = field(default_factory=list)

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def accepted(self, number: int) -> None:
        self.genuine.append(number)

    def refuse(self, reply: bytes | None) -> None:
        self.refused.append(reply)


class Rig:
    """An exchange, and what it told the person."""

    def __init__(self, timeout: float = 60.0) -> None:
        self.told: list[str] = []
        self.stop = threading.Event()
        dialogue = Dialogue(lambda _: None, lambda _: True, self.told.append)
        nobody = PairingError("nobody came")
        self.now = NOW
        environment = Environment(time_ns=lambda: int(self.now * 1e9))
        self.exchange = Exchange(dialogue, self.stop, environment, timeout, nobody)


def test_one_message_by_several_links_is_answered_once_on_each() -> None:
    rig, one, two = Rig(), inviter(), joiner()
    left, right = Recorder(), Recorder()
    hello = two.hello(NOW)
    for link in (left, right, left, right):
        rig.exchange.deliver(link, 1, hello)
    rig.exchange.take_waiting(one)
    assert len(left.sent) == 1
    assert left.sent == right.sent
    assert left.genuine == [1, 1]
    reveal = answer(two, left.sent[0])
    rig.exchange.deliver(right, 2, reveal)
    rig.exchange.deliver(left, 2, reveal)
    assert rig.exchange.drive(one, State.COMPARING) is right
    rig.exchange.take_waiting(one)
    assert len(left.sent) == len(right.sent) == 1
    assert left.refused == right.refused == []
    assert rig.told == []


def test_a_cloud_that_shows_an_old_message_as_a_new_one_skips_nothing() -> None:
    rig, one, two = Rig(), inviter(), joiner()
    link = Recorder()
    hello = two.hello(NOW)
    for number in (1, 2, 3):
        rig.exchange.deliver(link, number, hello)
    rig.exchange.take_waiting(one)
    assert link.genuine == [1, 1, 1]


def test_garbage_and_second_joiners_are_refused_and_told() -> None:
    rig, one, two = Rig(), inviter(), joiner()
    link, stranger, second = Recorder(), Recorder("a stranger"), Recorder("a second")
    rig.exchange.deliver(stranger, 1, b"garbage")
    rig.exchange.deliver(link, 1, two.hello(NOW))
    rig.exchange.deliver(second, 1, joiner(seed=9, key=OTHER).hello(NOW))
    rig.exchange.take_waiting(one)
    assert stranger.refused == [None]
    assert stranger.sent == second.sent == []
    assert second.refused[0] is not None
    assert [text.partition(":")[0] for text in rig.told] == ["a stranger", "a second"]
    assert one.state is State.ANSWERED


def test_only_the_loss_of_the_chosen_link_matters() -> None:
    rig, one, two = Rig(), inviter(), joiner()
    link, other = Recorder(), Recorder()
    rig.exchange.deliver(other, 1, None)
    rig.exchange.deliver(link, 1, two.hello(NOW))
    rig.exchange.take_waiting(one)
    rig.exchange.deliver(link, 2, answer(two, link.sent[0]))
    assert rig.exchange.drive(one, State.COMPARING) is link
    rig.exchange.deliver(other, 2, None)
    rig.exchange.take_waiting(one)
    rig.exchange.deliver(link, 3, None)
    with pytest.raises(PairingError, match="was lost"):
        rig.exchange.take_waiting(one)


def test_the_other_side_is_told_why_it_ends() -> None:
    rig, two = Rig(), joiner()
    link = Recorder()
    rig.now = NOW + 10_000
    rig.exchange.deliver(link, 1, two.hello(NOW))
    with pytest.raises(PairingError, match="expired"):
        rig.exchange.drive(inviter(), State.COMPARING)
    with pytest.raises(PairingError, match="expired"):
        two.receive(link.sent[0], NOW)


def test_it_ends_when_time_is_up_or_it_is_stopped() -> None:
    with pytest.raises(PairingError, match="nobody came"):
        Rig(timeout=0.0).exchange.drive(inviter(), State.COMPARING)
    rig = Rig()
    rig.stop.set()
    with pytest.raises(PairingError, match="stopped"):
        rig.exchange.drive(inviter(), State.COMPARING)


def test_after_the_grant_there_is_time_to_say_done() -> None:
    rig = Rig(timeout=0.0)
    one, two = introduced()
    link = Recorder()
    two.receive(granted(one), NOW)
    rig.exchange._chosen = link
    rig.exchange.deliver(link, 3, two.done())
    assert rig.exchange.wait_for_done(one)


@pytest.mark.parametrize("lost", [True, False])
def test_after_the_grant_it_is_no_failure_when_nothing_comes(lost: bool) -> None:
    rig = Rig()
    one, _ = introduced()
    link = Recorder()
    granted(one)
    rig.exchange._chosen = link
    if lost:
        rig.exchange.deliver(link, 3, None)
    else:
        rig.stop.set()
    assert not rig.exchange.wait_for_done(one)
