"""The daemon's look at its volumes: events for clients, notifications for the desktop, a file for panels."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from hybrisfs.api.status import AnyVolume, UnusableVolume
from hybrisfs.daemon.desktop import Desktop
from hybrisfs.daemon.observing import Observing
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.daemon.wanted_mounts import WantedMounts
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import UsageError
from hybrisfs.events.event import Action, Show, Withdraw
from hybrisfs.home import Home
from hybrisfs.wire import Message
from tests.daemon.fake import FakeVolumes


class Recorded(Desktop):
    """Remembers what is to be shown. The real one is tested with a bus of its own in `test_desktop`."""

    def __init__(self) -> None:
        super().__init__(lambda *_: None)
        self.actions: list[tuple[str, Action]] = []

    def carry_out(self, volume: str, action: Action) -> None:
        self.actions.append((volume, action))


class Rig:
    """Two open volumes."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.volumes = FakeVolumes("photos", "notes")
        self.slots = Slots(home, self.volumes, WantedMounts(home.state, SYSTEM))
        for slot in self.slots.all():
            home.volume_state(slot.name).mkdir(parents=True)
            slot.open()
        self.desktop = Recorded()
        self.observing = Observing(
            home, self.slots, lambda slot: slot.open().status(look=False), SYSTEM, self.desktop
        )

    def events(self, **arguments: Any) -> Message:
        return self.observing.commands["events"](arguments, lambda _: None)


@pytest.fixture
def rig(home: Home) -> Rig:
    return Rig(home)


def fail(rig: Rig, volume: str = "photos", state: str = "down") -> None:
    rig.volumes.opened[volume].states["cloud-1"] = (state, "no answer")


def test_events_are_answered_and_followed_by_number(rig: Rig) -> None:
    rig.observing.look(1.0)
    assert rig.events() == {"events": [], "after": {"photos": 0, "notes": 0}}
    fail(rig)
    rig.observing.look(2.0)
    first = rig.events()
    assert [(one["volume"], one["topic"]) for one in first["events"]] == [("photos", "cloud/cloud-1")]
    fail(rig, "notes")
    rig.observing.look(3.0)
    assert [one["volume"] for one in rig.events(after=first["after"])["events"]] == ["notes"]
    assert [one["volume"] for one in rig.events(name="photos")["events"]] == ["photos"]
    assert [one["volume"] for one in rig.events(limit=1)["events"]] == ["notes"]


def test_who_follows_in_small_steps_misses_nothing(rig: Rig) -> None:
    for second in range(6):
        fail(rig, state="down" if second % 2 else "lying")
        fail(rig, "notes", state="down" if second % 2 else "lying")
        rig.observing.look(float(second))
    seen, after = [], {"photos": 0, "notes": 0}
    while (page := rig.events(after=after, limit=1))["events"]:
        seen += [(one["volume"], one["number"]) for one in page["events"]]
        after = page["after"]
    assert sorted(seen) == sorted((name, number) for name in ("photos", "notes") for number in range(1, 7))


def test_who_waits_is_told_at_once(rig: Rig) -> None:
    found: list[Message] = []
    waiting = threading.Event()

    def wait() -> None:
        command = rig.observing.commands["events"]
        found.append(command({"after": {}, "wait": 60}, lambda _: waiting.set()))

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waiting.wait(30)
    fail(rig)
    rig.observing.look(1.0)
    waiter.join(30)
    assert [one["topic"] for one in found[0]["events"]] == ["cloud/cloud-1"]


def test_nobody_waits_for_a_daemon_that_ends(rig: Rig) -> None:
    rig.observing.stop()
    assert rig.events(after={}, wait=60)["events"] == []


def test_events_outlive_the_daemon(rig: Rig, home: Home) -> None:
    fail(rig)
    rig.observing.look(1.0)
    rig.observing.stop()
    again = Rig.__new__(Rig)
    again.__dict__.update(rig.__dict__)
    again.observing = Observing(
        home, rig.slots, lambda slot: slot.open().status(look=False), SYSTEM, rig.desktop
    )
    again.observing.look(100.0)  # it is still down: known already
    assert [one["number"] for one in again.events()["events"]] == [1]


def test_the_desktop_is_told_what_needs_a_person(rig: Rig) -> None:
    volume = rig.volumes.opened["photos"]
    volume.conflicting.append({})
    rig.observing.look(1.0)
    volume.conflicting.clear()
    rig.observing.look(2.0)
    assert [(name, type(action)) for name, action in rig.desktop.actions] == [
        ("photos", Show),
        ("photos", Withdraw),
    ]


def test_the_desktop_is_left_alone_when_it_is_to_be(rig: Rig) -> None:
    volume = rig.volumes.opened["photos"]
    volume.settings.edit({"notifications": False})
    volume.conflicting.append({})
    rig.observing.look(1.0)
    assert rig.desktop.actions == []
    assert rig.events()["events"], "they are there for who asks"


def test_a_volume_that_cannot_be_opened_is_not_tried_at_every_look(rig: Rig) -> None:
    tried: list[float] = []
    slot = rig.slots.get("notes")
    slot.close()

    def unusable(one: Slot) -> AnyVolume:
        if one is slot:
            tried.append(now)
            return UnusableVolume(name=one.name, last_error="the database is damaged", missing_mount=None)
        return one.open().status(look=False)

    observing = Observing(rig.home, rig.slots, unusable, SYSTEM, rig.desktop)
    for now in (1.0, 6.0, 11.0, 61.0, 66.0):
        observing.look(now)
    assert tried == [1.0, 61.0]
    found = observing.commands["events"]({"name": "notes"}, lambda _: None)["events"]
    assert [one["topic"] for one in found] == ["volume"]


def test_panels_find_a_file_that_goes_with_the_daemon(rig: Rig, home: Home) -> None:
    path = home.runtime / "status.json"
    rig.observing.look(1.0)
    told = json.loads(path.read_bytes())
    assert told["version"] == 1
    assert [one["name"] for one in told["volumes"]] == ["notes", "photos"]
    before = path.stat().st_ino
    rig.observing.look(2.0)
    assert path.stat().st_ino == before
    fail(rig)
    rig.observing.look(3.0)
    assert json.loads(path.read_bytes())["volumes"] != told["volumes"]
    rig.observing.stop()
    assert not path.exists()


@pytest.mark.parametrize("after", [[], {"photos": "1"}, {"photos": True}, "x"])
def test_what_makes_no_sense_is_refused(rig: Rig, after: object) -> None:
    with pytest.raises(UsageError, match="after"):
        rig.events(after=after)
