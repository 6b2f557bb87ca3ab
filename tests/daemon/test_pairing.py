"""Pairings in the daemon: what those who wait are told, the answer, and the end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hybrisfs.api.devices import PairingNews
from hybrisfs.daemon.devices import Pairing, Pairings
from hybrisfs.daemon.service import Daemon
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.pairing.errors import PairingError
from hybrisfs.pairing.exchange import Dialogue
from hybrisfs.wire import ChannelError, Message
from tests.daemon.fake import CODE, COMPARISON, FakePairing, FakeVolume, FakeVolumes


@pytest.fixture
def volumes() -> FakeVolumes:
    return FakeVolumes("photos")


@pytest.fixture
def daemon(home: Home, volumes: FakeVolumes) -> Daemon:
    return Daemon(home, volumes, SYSTEM)


@pytest.fixture
def photos(daemon: Daemon, volumes: FakeVolumes) -> FakeVolume:
    daemon.start()
    return volumes.opened["photos"]


class Person:
    """Answers the question as soon as it is asked; `told` is what was shown."""

    def __init__(self, daemon: Daemon, *answers: bool) -> None:
        self._daemon = daemon
        self._answers = answers
        self.told: list[Message] = []

    def __call__(self, facts: Message) -> None:
        self.told.append(facts)
        if facts.get("question"):
            for accept in self._answers:
                arguments = {"pairing": facts["pairing"], "accept": accept}
                self._daemon.handle("device confirm", arguments, lambda _: None)


def test_an_invitation_is_shown_compared_and_taken_up(daemon: Daemon, photos: FakeVolume) -> None:
    person = Person(daemon, True)
    done = daemon.handle("device invite", {"valid": 60, "with_credentials": True}, person)
    assert done == {"name": "photos", "device": "laptop", "id": "00", "acknowledged": True}
    assert photos.invited == [(60, True)]
    assert photos.pairing.confirmed == [True]
    assert {facts["code"] for facts in person.told} == {CODE}
    asked = next(facts for facts in person.told if facts.get("question"))
    assert (asked["comparison"], asked["device"]) == (COMPARISON, "laptop")


def test_secrets_stay_unless_asked_for(daemon: Daemon, photos: FakeVolume) -> None:
    daemon.handle("device invite", {}, Person(daemon, True))
    assert photos.invited == [(900, False)]


@pytest.mark.parametrize("answers", [(False,), (False, True)])
def test_the_first_answer_counts(daemon: Daemon, photos: FakeVolume, answers: tuple[bool, ...]) -> None:
    with pytest.raises(PairingError, match="not confirmed"):
        daemon.handle("device invite", {}, Person(daemon, *answers))
    assert photos.pairing.confirmed == [False]


def test_joining_opens_the_volume(daemon: Daemon, volumes: FakeVolumes) -> None:
    arguments = {"code": CODE, "as_name": "here", "own_name": "den"}
    done = daemon.handle("device join", arguments, Person(daemon, True))
    assert done["volume"]["name"] == "here"
    assert volumes.own_names == ["den"]
    assert "here" in volumes.opened


@pytest.mark.parametrize("confirmed", [True, False])
def test_joining_after_a_bad_code_or_answer_makes_no_volume(
    daemon: Daemon, volumes: FakeVolumes, confirmed: bool
) -> None:
    code = "hfs1-typo" if confirmed else CODE
    with pytest.raises(HybrisError):
        daemon.handle("device join", {"code": code}, Person(daemon, confirmed))
    assert list(volumes.configs) == ["photos"]


@pytest.mark.parametrize("peer", [None, "laptop"])
def test_a_pairing_ends_when_nobody_listens_any_more(
    daemon: Daemon, photos: FakeVolume, peer: str | None
) -> None:
    photos.pairing = FakePairing(peer)
    waits: list[str] = []

    def hang_up(facts: Message) -> None:
        if photos.pairing.waiting.is_set() and (peer is None or facts.get("question")):
            waits.append(facts["pairing"])
            raise ChannelError("connection lost")

    with pytest.raises(ChannelError):
        daemon.handle("device invite", {}, hang_up)
    assert photos.pairing.ended.is_set()
    with pytest.raises(UsageError, match="no such pairing"):
        daemon.handle("device confirm", {"pairing": waits[0], "accept": True}, lambda _: None)
    assert photos.pairing.confirmed == ([] if peer is None else [False])


def test_an_answer_to_no_pairing(daemon: Daemon) -> None:
    with pytest.raises(UsageError, match="no such pairing"):
        daemon.handle("device confirm", {"pairing": "0123", "accept": True}, lambda _: None)


def test_a_bug_in_a_pairing_comes_out(daemon: Daemon) -> None:
    def work(_: Dialogue, __: threading.Event) -> Message:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Pairings().carry_through(Pairing(PairingNews(), work), lambda _: None)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("device invite", {"valid": "long"}),
        ("device invite", {"with_credentials": "yes"}),
        ("device invite", {"role": "owner"}),
        ("device role", {"device": "desk", "role": "owner"}),
        ("device role", {"role": "reader"}),
        ("device join", {}),
        ("device join", {"code": 1}),
        ("device confirm", {"pairing": "x", "accept": "yes"}),
        ("device rename", {"device": "desk"}),
        ("conflicts keep", {}),
        ("conflicts keep-all", {"path": "a\0b"}),
        ("deletions accept", {}),
        ("deletions undo", {"id": 5}),
    ],
)
def test_malformed_requests_are_refused(
    daemon: Daemon, photos: FakeVolume, command: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        daemon.handle(command, arguments, lambda _: None)
    assert photos.invited == [] and photos.decisions == []
