"""A device leaves: what it wrote stays, and all hear of it through the clouds, whatever ends it meanwhile."""

from __future__ import annotations

import pytest

from hybrisfs.errors import HybrisError
from tests.system.clouds import away, objects
from tests.volume.device import PATIENCE, Device
from tests.volume.recovery_rig import First, Second, has, waits


def belongs(device: Device, other: Device) -> bool:
    return other.volume.sharing.device in device.volume.sharing.current_members()


def test_the_others_hear_of_it_and_go_on(first: First, second: Second) -> None:
    second.write("of second", b"stays")
    second.sync()
    assert second.volume.leave(PATIENCE) and second.volume.has_left
    waits(first, lambda: not belongs(first, second))
    first.write("after", b"sealed with other keys")
    first.sync()
    assert first.read("of second") == b"stays"
    assert first.volume.ring.is_fit
    assert second.volume.ring.find(first.volume.ring.newest.id) is None
    assert first.volume.devices()[0].this and len(first.volume.devices()) == 1
    assert not first.fsck(clouds=True).problems
    with pytest.raises(HybrisError, match="removed from the volume"):
        second.volume.sync(PATIENCE, lambda done, total: None)


def test_a_word_that_no_cloud_has_taken_is_brought_after_a_crash(first: First, second: Second) -> None:
    second.sync()
    first.sync()
    with away(*first.clouds):
        assert not second.volume.leave(0.5)
        second.reopen()
        assert second.volume.has_left and not second.volume.leave(0.5)
    assert belongs(first, second)
    second.reopen()
    assert second.volume.leave(PATIENCE)
    waits(first, lambda: not belongs(first, second))


def test_one_that_comes_later_knows_that_it_left(first: First, second: Second) -> None:
    second.write("of second", b"stays")
    second.sync()
    assert second.volume.leave(PATIENCE)
    waits(first, lambda: not belongs(first, second))
    first.sync()
    third = Second(second.home.root.parent / "third", first, "third")  # type: ignore[union-attr]
    try:
        waits(third, lambda: has(third, "of second") and not belongs(third, second))
        assert third.read("of second") == b"stays"
    finally:
        third.close()


def test_what_stays_says_that_no_cloud_has_the_volume(first: First, second: Second) -> None:
    second.close()
    before = [path for cloud in first.clouds for path in objects(cloud / "packs")]
    for path in (path for cloud in first.clouds for path in objects(cloud)):
        path.unlink()
    first.write("later", b"for nobody")
    first.volume.checkup.refresh(PATIENCE, thoroughly=True)
    told = [one for one in first.volume.status().warnings if "no cloud has this volume now" in one]
    assert len(told) == 1 and "volume leave vol --force" in told[0]
    assert not any((cloud / "volume").exists() for cloud in first.clouds), "no mark is put back"
    assert before and not any(path.exists() for path in before), "nothing is put back silently"
