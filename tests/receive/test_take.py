"""Receiving many updates at once: each is checked, though not one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hybrisfs.environment import Environment, Limits
from hybrisfs.receive.check import CheckLimits
from hybrisfs.receive.take import ReceiveLimits
from sync import decode_signed_header
from tests.merge.fleet import Fleet

UPDATES = 80
FORGED = 50


@pytest.fixture(params=["here", "in another process"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Two devices; updates are checked in one of the two places, a few at a time."""
    environment = Environment(
        processors=lambda: 1 if request.param == "here" else 2,
        limits=Limits(CheckLimits(worth_it=10), ReceiveLimits(batch_updates=20)),
    )
    fleet = Fleet(2, environment=lambda _: environment)
    yield fleet
    fleet.discard()


def test_a_forged_signature_among_many_is_found(fleet: Fleet) -> None:
    ada, bob = fleet[0], fleet[1]
    for number in range(UPDATES):
        ada.mkdir(f"folder {number:02}")
        ada.sign()
    log = ada.log()
    at = len(decode_signed_header(log[FORGED]).data) - 1  # the last byte of the signature
    forged = bytearray(log[FORGED])
    forged[at] ^= 1

    complete = bob.receive([*log[:FORGED], bytes(forged), *log[FORGED + 1 :]])

    assert not complete
    assert bob.rig.sharing.receiver.refused is not None
    assert "did not sign" in bob.rig.sharing.receiver.refused
    assert bob.log() == log[:FORGED]

    assert bob.receive([log[FORGED]])  # what waited for it follows
    assert bob.log() == log
    assert bob.tree() == ada.tree()


def test_what_is_known_already_is_not_taken_twice(fleet: Fleet) -> None:
    ada, bob = fleet[0], fleet[1]
    for number in range(UPDATES):
        ada.mkdir(f"folder {number:02}")
        ada.sign()
    bob.receive(ada.log()[:FORGED])
    assert bob.receive(ada.log() * 2)
    assert bob.log() == ada.log()


def test_between_two_batches_whoever_waits_for_the_lock_gets_it(fleet: Fleet) -> None:
    ada, bob = fleet[0], fleet[1]
    for number in range(UPDATES):
        ada.mkdir(f"folder {number:02}")
        ada.sign()
    seen: list[int] = []

    def look() -> None:
        with bob.rig.fs.state.transaction():
            seen.append(len(bob.log()))

    def pause(_seconds: float) -> None:
        other = threading.Thread(target=look, daemon=True)
        other.start()
        other.join(30)

    bob.rig.around.sleep = pause
    assert bob.receive(ada.log())
    assert seen == [5, 25, 45, 65]
