"""What of a pack is needed, by the view and by what the view does not show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.gc.find import References
from tests.gc.support import Collecting
from tests.merge.fleet import Device, Fleet
from tests.surroundings import limited
from tests.tree.rig import SMALL_BLOCKS, small_chunks

LONG = bytes(range(256)) * 100


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2, environment=lambda _: limited(small_chunks(512), SMALL_BLOCKS))
    fleet[0].write("one", b"content of one")
    fleet[0].sign()
    fleet[0].write("two", b"content of two")
    fleet[0].sign()
    fleet.meet()
    yield fleet
    fleet.discard()


def needed(device: Device) -> list[bytes]:
    """The contents of chunks that packs are kept for."""
    device.rig.commit()
    found = []
    with device.rig.db.snapshot() as snapshot:
        references = References(snapshot, Collecting(device).pages)
        for (pack,) in snapshot.execute("SELECT number FROM pack"):
            for number in references.of(pack).chunks:
                row = snapshot.execute("SELECT id FROM chunk WHERE number = ?", (number,)).fetchone()
                found.append(device.rig.plaintexts[row[0]])
    return sorted(found)


def test_what_files_show(fleet: Fleet) -> None:
    for device in fleet.devices:
        assert needed(device) == [b"content of one", b"content of two"]


def test_a_file_that_was_removed_everywhere_needs_nothing(fleet: Fleet) -> None:
    fleet[0].remove("one")
    assert needed(fleet[0]) == [b"content of one", b"content of two"]  # its removal is not signed yet
    fleet[0].sign()
    assert needed(fleet[0]) == [b"content of two"]
    fleet.meet()
    assert needed(fleet[1]) == [b"content of two"]


def test_a_removal_that_another_device_has_not_seen(fleet: Fleet) -> None:
    fleet[1].move("one", "renamed")
    fleet[0].remove("one")
    fleet[0].sign()
    assert needed(fleet[0]) == [b"content of two"]
    fleet.meet()
    for device in fleet.devices:
        assert needed(device) == [b"content of one", b"content of two"]


def test_both_versions_of_a_conflict(fleet: Fleet) -> None:
    fleet[0].write("one", b"by one device")
    fleet[1].write("one", b"by the other")
    fleet.meet()
    for device in fleet.devices:
        assert needed(device) == [b"by one device", b"by the other", b"content of two"]


def test_what_a_change_hides_that_is_not_signed_yet(fleet: Fleet) -> None:
    """Another device's version of the same content would bring it back."""
    fleet[0].write("one", b"")
    assert needed(fleet[0]) == [b"content of one", b"content of two"]
    fleet[0].sign()
    assert needed(fleet[0]) == [b"content of two"]


def test_all_that_the_list_of_a_long_file_names(fleet: Fleet) -> None:
    fleet[0].write("long", LONG)
    fleet[0].sign()
    parts = {LONG[at : at + 512] for at in range(0, len(LONG), 512)}
    assert parts < set(needed(fleet[0]))
    fleet[0].write("long", b"")  # hides it, and is not signed
    assert parts < set(needed(fleet[0]))
