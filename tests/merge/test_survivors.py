"""A file that one device removed while another one edited it survives under a name that it had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.merge.fleet import Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two devices, on both of which `file` survives."""
    one = Fleet(2)
    one[0].write("file", b"content")
    one.meet()
    one[1].remove("file")
    one[0].write("file", b"edited")
    one.meet()
    for device in one.devices:
        assert device.names() == ["file"]
    yield one
    one.discard()


@pytest.mark.parametrize("number", [0, 1])
def test_a_further_name_does_not_take_that_one_away(fleet: Fleet, number: int) -> None:
    device = fleet[number]
    device.link("file", "link")
    device.sign()
    assert device.names() == ["file", "link"]
    device.write("draft", b"new")
    device.move("draft", "link")
    fleet.meet()
    for other in fleet.devices:
        assert other.names() == ["file", "link"]
        assert other.read("file") == b"edited"
        assert other.read("link") == b"new"


def test_a_further_name_is_all_that_is_left_when_that_one_is_removed(fleet: Fleet) -> None:
    fleet[0].link("file", "link")
    fleet[0].remove("file")
    fleet.meet()
    for device in fleet.devices:
        assert device.names() == ["link"]
        assert device.read("link") == b"edited"
