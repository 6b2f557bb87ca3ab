"""Requests and answers of the control socket, as records and as messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from hybrisfs.api.request import (
    Folder,
    LongRequest,
    Moved,
    Part,
    PartsRequest,
    Question,
    Record,
    Seconds,
    Text,
    Texts,
    extended,
    message_of,
)
from hybrisfs.api.status import StatusRequest, UnusableVolume, VolumeStatus
from hybrisfs.api.volumes import PlaceTryRequest
from hybrisfs.daemon.service import Daemon
from hybrisfs.environment import SYSTEM
from hybrisfs.errors import UsageError
from hybrisfs.home import Home
from tests.daemon.fake import FakeVolumes
from tests.facts import status_of


class Answer(Record):
    """As a daemon gives it."""

    size: int
    note: str | UnsetType = UNSET


class Larger(Answer, kw_only=True):
    """The same with a name."""

    name: str


class Asked(LongRequest[Answer, Moved]):
    """With an argument of each type."""

    command: ClassVar = "ask"

    name: Text
    directory: Folder | None = None
    seconds: Seconds | None = None
    paths: Texts = []  # noqa: RUF012 - msgspec copies it
    number: int | None = None
    switch: bool = False


def test_a_request_is_answered_and_tells_of_its_progress() -> None:
    def act(asked: Asked, tell: Callable[[Moved], None]) -> Answer:
        tell(Moved(1, len(asked.name)))
        return Answer(asked.number or 0)

    told: list[dict[str, Any]] = []
    command, handle = Asked.answered_by(act)
    assert command == "ask"
    assert handle(Asked("four", number=3).arguments, told.append) == {"size": 3}
    assert told == [{"done": 1, "total": 4}]
    assert Asked.news_from(told[0]) == Moved(1, 4)


class AskedForMuch(PartsRequest[Answer, Moved]):
    """With an answer in parts."""

    command: ClassVar = "ask for much"


def test_parts_of_an_answer_are_no_news() -> None:
    """Of news only some may be passed on."""

    def act(_: AskedForMuch, tell: Callable[[Moved], None]) -> Answer:
        tell(Moved(1, 2))
        tell(Moved(2, 2))
        return Answer(2)

    told: list[dict[str, Any]] = []
    _, handle = AskedForMuch.answered_by(act)
    assert AskedForMuch.answer_from(handle({}, told.append)) == Answer(2)
    assert all(isinstance(one, Part) for one in told)
    assert [AskedForMuch.news_from(one) for one in told] == [Moved(1, 2), Moved(2, 2)]


def test_arguments_that_are_none_do_not_travel() -> None:
    assert Asked("x", number=0).arguments == {"name": "x", "paths": [], "number": 0, "switch": False}


def test_names_that_are_no_utf_8_pass() -> None:
    assert Asked.read(Asked("a\udcff").arguments).name == "a\udcff"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"name": None}, "name must be a text"),
        ({"name": "x\0"}, "name must be a text"),
        ({"name": "x" * 8193}, "name must be a text"),
        ({"directory": "relative"}, "directory must be an absolute path"),
        ({"seconds": -1}, "seconds must be a number of seconds"),
        ({"seconds": True}, "seconds must be a number of seconds"),
        ({"paths": ["a", 3]}, "paths must be a list of texts"),
        ({"paths": ["a"] * 257}, "paths must be a list of texts"),
        ({"number": True}, "number must be a whole number"),
        ({"number": "3"}, "number must be a whole number"),
        ({"switch": None}, "switch must be true or false"),
        ({"nmae": "x"}, "nmae is unknown"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=f"^{error}$"):
        Asked.read({"name": "x", **wrong})


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(UsageError, match=r"^name is missing$"):
        Asked.read({})


@pytest.mark.parametrize("secret", ["", "hush\0", "hush" * 5000, 3])
def test_an_error_shows_no_secret(secret: Any) -> None:
    with pytest.raises(UsageError, match=r"^secrets must be texts of 1 to 16384") as refused:
        PlaceTryRequest.read({"url": "file:///x", "secrets": {"password": secret}})
    assert "hush" not in str(refused.value)


def test_an_answer_may_lack_what_is_unset_and_have_more_than_is_known() -> None:
    assert Asked.answer_from({"size": 1, "new": True}) == Answer(1)
    assert message_of(Answer(1)) == {"size": 1}
    assert message_of(extended(Larger, Answer(1, "x"), name="y")) == {"size": 1, "note": "x", "name": "y"}
    with pytest.raises(msgspec.ValidationError):
        Asked.answer_from({"size": "1"})


def test_both_kinds_of_volumes_are_told_apart() -> None:
    broken = UnusableVolume(name="broken", last_error="damaged", missing_mount=None)
    volumes = [message_of(one) for one in (status_of(), broken)]
    daemon = {"version": "1", "pid": 1, "uptime": 1.5}
    found = StatusRequest.answer_from({"daemon": daemon, "volumes": volumes})
    assert found.volumes == [status_of(), broken]
    assert [type(one) for one in found.volumes] == [VolumeStatus, UnusableVolume]


def requests(kind: type[Question[Any]] = Question) -> list[type[Question[Any]]]:
    found = [one for each in kind.__subclasses__() for one in (each, *requests(each))]
    return [one for one in found if hasattr(one, "command") and one.__module__.startswith("hybrisfs.")]


def test_the_daemon_answers_each_request_and_nothing_else(tmp_path: Path) -> None:
    daemon = Daemon(Home.below(tmp_path), FakeVolumes("photos"), SYSTEM)
    commands = [one.command for one in requests()]
    assert sorted(commands) == sorted(daemon.commands)


@pytest.mark.parametrize("kind", requests(), ids=lambda kind: kind.command)
def test_each_request_says_what_its_answer_is(kind: type[Question[Any]]) -> None:
    with pytest.raises(msgspec.ValidationError):
        kind.answer_from([])  # type: ignore[arg-type]
