"""Names of others in what people are told: no file's name makes a line of its own there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import pytest

from hybrisfs.errors import HybrisError
from hybrisfs.events.conditions import conditions
from hybrisfs.mount.mountpoint import Holder, describe_holders
from tests.events.test_changes import facts
from tests.volume.device import PATIENCE, Device

NAME = "a\nhybrisfs: all is well\x1b[2K"
SHOWN = r"$'a\nhybrisfs: all is well\e[2K'"


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path)
    device.write(NAME, b"content")
    device.write("other", b"content")
    assert device.volume.uploads.wait_signed(PATIENCE)
    yield device
    device.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda device: device.volume.content.unpin(PurePath(NAME)),
        lambda device: device.volume.content.pin(PurePath(NAME, "none")),
        lambda device: device.volume.conflict_table.keep(NAME),
        lambda device: device.volume.versions.reader(NAME, None, 7),
        lambda device: device.volume.versions.restore("other", None, 0, f"{NAME}/other"),
        lambda device: device.volume.browsing.folder(PurePath(NAME), "", 10),
        lambda device: device.volume.browsing.read(PurePath(NAME, "none"), 0, 10),
    ],
)
def test_an_error_about_a_file_has_the_lines_that_it_was_given(
    device: Device, ask: Callable[[Device], object]
) -> None:
    with pytest.raises(HybrisError) as raised:
        ask(device)
    error = raised.value
    assert all(text.isprintable() for text in (error.what, error.why, error.advice)), str(error)


def test_who_keeps_a_mount_busy() -> None:
    assert describe_holders([Holder(12, NAME, f"/home/a/{NAME}")]) == (
        rf"{SHOWN} (process 12) uses $'/home/a/a\nhybrisfs: all is well\e[2K'"
    )


def test_events_about_a_device() -> None:
    device = {"id": "1", "name": NAME, "suspect": True, "forked": True}
    found = conditions(facts(devices=[device]))
    for topic in ("device/1", "fork/1"):
        assert found[topic].text.startswith(("changes of", SHOWN))
        assert found[topic].text.isprintable() and found[topic].ended.isprintable()
