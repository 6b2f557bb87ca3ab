"""What is told of a volume, from one look to the next."""

from __future__ import annotations

from typing import Any

from hybrisfs.api.status import UnusableVolume, VolumeStatus
from hybrisfs.events.conditions import Happening, Observer
from hybrisfs.events.event import Event
from tests.facts import status_of

CLOUDS = ("amber", "birch", "cedar")


def facts(**different: Any) -> VolumeStatus:
    states = different.pop("states", {})
    clouds = [
        {"name": name, "state": states.get(name, "ok"), "reason": "no answer" if name in states else ""}
        for name in CLOUDS
    ]
    return status_of(**{"clouds": clouds, "devices": [{"id": "aa", "this": True}], **different})


def test_people_learn_of_what_was_merged_unasked() -> None:
    observer = Observer()
    assert list(observer.look(facts(merged=[]), 0.0)) == []
    first, second = {"path": "notes.txt", "at": 1.0}, {"path": "notes.txt", "at": 2.0}
    for merged in ([first], [first, second]):
        [one] = observer.look(facts(merged=merged), 2.0)
        assert (one.kind, one.topic) == ("news", "merged/notes.txt")
        assert "both stay as earlier versions" in one.text
    assert observer.look(facts(merged=[first, second]), 3.0) == []


def test_a_volume_that_is_well_has_nothing_to_tell() -> None:
    observer = Observer()
    assert observer.look(facts(), 0.0) == []
    assert observer.look(facts(states={"amber": "slow"}), 5.0) == []


def test_trouble_is_told_when_it_begins_changes_and_ends_and_not_in_between() -> None:
    observer = Observer()
    down, lying = facts(states={"amber": "down"}), facts(states={"amber": "lying"})
    assert observer.look(down, 0.0) == [
        Happening("trouble", "cloud/amber", "amber cannot be reached: no answer")
    ]
    assert observer.look(down, 5.0) == []
    assert [one.kind for one in observer.look(lying, 10.0)] == ["trouble"]
    assert observer.look(facts(), 7200.0) == [
        Happening("over", "cloud/amber", "amber is well again, after 2 hours")
    ]
    assert observer.look(facts(), 7205.0) == []


def test_a_warning_that_has_gone_is_repeated_with_its_time() -> None:
    full = "the disk of /state is full: nothing can be written until it has room again"
    observer, again = Observer(), Observer()
    observer.look(facts(warnings=[full]), 0.0)
    over = [Happening("over", f"warning/{full}", f"it lasted 2 hours: {full}")]
    assert observer.look(facts(), 7200.0) == over
    again.remember([Event(1, 0.0, "trouble", f"warning/{full}", full)])
    assert again.look(facts(), 7200.0) == over


def test_more_failed_clouds_than_the_volume_does_without_are_told_apart() -> None:
    found = Observer().look(facts(states={"amber": "down", "birch": "refusing"}), 0.0)
    assert {one.topic for one in found} == {"cloud/amber", "cloud/birch", "clouds"}


def test_trouble_that_went_on_over_a_restart_is_not_told_again() -> None:
    observer = Observer()
    observer.remember(
        [
            Event(1, 0.0, "trouble", "cloud/amber", "amber cannot be reached"),
            Event(2, 1.0, "trouble", "error", "an error"),
            Event(3, 2.0, "over", "error", "the error is gone"),
        ]
    )
    assert observer.look(facts(states={"amber": "down"}), 3600.0) == []
    assert observer.look(facts(), 7200.0) == [
        Happening("over", "cloud/amber", "amber is well again, after 2 hours")
    ]


def test_conflicts_are_told_when_there_are_more_and_when_there_is_none() -> None:
    observer = Observer()
    assert [one.topic for one in observer.look(facts(conflicts=1), 0.0)] == ["conflicts"]
    assert [one.text for one in observer.look(facts(conflicts=3), 5.0)] == ["2 more conflicts"]
    assert observer.look(facts(conflicts=2), 10.0) == []
    assert [one.kind for one in observer.look(facts(), 15.0)] == ["over"]


def test_machines_that_come_and_go_are_news_but_not_at_the_first_look() -> None:
    observer = Observer()
    two = [{"id": "aa", "name": "desk"}, {"id": "bb", "name": "laptop"}]
    assert observer.look(facts(), 0.0) == []
    assert observer.look(facts(devices=two), 5.0) == [
        Happening("news", "member/bb", "laptop belongs to the volume now")
    ]
    assert observer.look(facts(), 10.0) == [
        Happening("news", "member/bb", "laptop belongs to the volume no longer")
    ]


def test_ignore_rules_that_come_and_go_are_news_but_not_at_the_first_look() -> None:
    def rules(*patterns: str) -> dict[str, object]:
        return {"rules": [{"pattern": one, "by": "nas"} for one in patterns], "files": 0, "bytes": 0}

    observer = Observer()
    assert list(observer.look(facts(ignored=rules("*.o")), 0.0)) == []
    assert observer.look(facts(ignored=rules("*.o", "*.log")), 1.0) == [
        Happening(
            "news",
            "ignore/*.log",
            "new files that match *.log stay on the machine that makes them, by a rule of nas",
        )
    ]
    assert observer.look(facts(ignored=rules("*.log")), 2.0) == [
        Happening("news", "ignore/*.o", "files that match *.o are synced: the ignore rule is gone")
    ]
    assert observer.look(facts(ignored=rules("*.log")), 3.0) == []


def test_silent_and_forked_machines_are_trouble() -> None:
    devices = [{"id": "bb", "name": "laptop", "suspect": True, "forked": True}]
    assert {one.topic for one in Observer().look(facts(devices=devices), 0.0)} == {"device/bb", "fork/bb"}


def test_that_all_is_safe_is_news_to_who_had_to_wait_for_it() -> None:
    observer = Observer()
    assert observer.look(facts(pending_files=3), 0.0) == []
    assert observer.look(facts(), 5.0) == []
    assert observer.look(facts(pending_bytes=1), 10.0) == []
    assert observer.look(facts(pending_files=3), 60.0) == []
    assert observer.look(facts(), 200.0) == [
        Happening("news", "safe", "everything is safe on the clouds, after 3 minutes")
    ]


def test_a_volume_that_cannot_be_used_says_nothing_else() -> None:
    observer = Observer()
    observer.look(facts(states={"amber": "down"}), 0.0)
    unusable = UnusableVolume(name="home", last_error="the database is damaged", missing_mount=None)
    assert [one.topic for one in observer.look(unusable, 5.0)] == ["volume", "cloud/amber"]


def test_a_cloud_is_in_trouble_since_an_earlier_daemon_saw_it() -> None:
    observer = Observer()
    observer.remember([Event(1, 100.0, "trouble", "cloud/amber", "amber cannot be reached")])
    now = facts(states={"amber": "down"})
    for cloud in now.clouds:
        cloud.since = 500
    observer.date(now)
    assert {one.name: one.since for one in now.clouds}["amber"] == 100
    assert [one.since for one in now.clouds if one.name != "amber"] == [500, 500]
    observer.look(now, 510.0)
    full = facts(states={"amber": "full"})
    full.clouds[0].since = 600
    observer.date(full)
    assert full.clouds[0].since == 600  # another trouble
