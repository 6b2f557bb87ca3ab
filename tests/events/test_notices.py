"""What somebody is interrupted for."""

from __future__ import annotations

import pytest

from hybrisfs.events.conditions import summary
from hybrisfs.events.event import Event, Kind, NoticeBoard, Show, Withdraw
from tests.events.test_changes import facts


def event(kind: Kind, topic: str, time: float, text: str = "text") -> Event:
    return Event(1, time, kind, topic, text)


def test_a_conflict_is_shown_at_once_and_withdrawn_when_it_is_settled() -> None:
    board = NoticeBoard()
    assert board.take([event("trouble", "conflicts", 0.0)], 0.0) == [Show("conflicts", "text", "conflicts")]
    assert board.take([], 5.0) == []
    assert board.take([event("over", "conflicts", 10.0)], 10.0) == [Withdraw("conflicts")]


def test_a_cloud_is_shown_only_when_it_is_away_for_long() -> None:
    board = NoticeBoard()
    assert board.take([event("trouble", "cloud/a", 0.0)], 0.0) == []
    assert board.take([event("over", "cloud/a", 100.0)], 100.0) == []
    assert board.take([], 4000.0) == []
    board.take([event("trouble", "cloud/a", 5000.0)], 5000.0)
    assert board.take([], 6799.0) == []
    assert board.take([], 6800.0) == [Show("cloud/a", "text", "clouds")]


def test_what_comes_and_goes_is_shown_now_and_then() -> None:
    board = NoticeBoard()
    shown = 0
    for second in range(0, 3600, 10):
        came, went = event("trouble", "conflicts", second), event("over", "conflicts", second + 5)
        shown += sum(isinstance(one, Show) for one in board.take([came], second))
        board.take([went], second + 5)
    assert 1 <= shown <= 7


@pytest.mark.parametrize(
    ("topic", "section"),
    [
        ("volume", "overview"),
        ("clouds", "clouds"),
        ("fork/aa", "devices"),
        ("warning/the disk is full", "overview"),
        ("error", "overview"),
    ],
)
def test_a_click_leads_to_what_can_be_done_about_it(topic: str, section: str) -> None:
    due = NoticeBoard().take([event("trouble", topic, 0.0)], 1e6)
    assert due == [Show(topic, "text", section)]


def test_news_interrupts_nobody() -> None:
    assert NoticeBoard().take([event("news", "safe", 0.0), event("news", "member/x", 0.0)], 1e6) == []


def test_a_panel_is_told_the_worst() -> None:
    assert summary(facts()).state == "ok"
    assert summary(facts(pending_files=2)).text == "2 changes on the way to the clouds"
    lacking = {"files": 2, "bytes": 9, "devices": ["ada"]}
    told = summary(facts(machines_only=lacking))
    assert (told.state, told.text) == ("busy", "2 files are on your machines only, and on no cloud yet")
    told = summary(facts(removed=True, machines_only=lacking))
    assert told.state == "trouble"
    assert told.text == (
        "this machine was removed from the volume: what changes here reaches no other machine"
    )
    assert summary(facts(pending_files=2, conflicts=1)).state == "attention"
    assert summary(facts(conflicts=1, states={"amber": "down", "birch": "down"})).state == "trouble"
