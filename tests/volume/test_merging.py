"""Versions in conflict are compared and merged on one device; then all devices agree, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.read.fetch import Fetcher
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unseen import Aspect, Change
from hybrisfs.versions.catalog import Catalog
from hybrisfs.versions.retention import DEFAULT_RETENTION
from hybrisfs.volume.decisions import Conflicts
from hybrisfs.volume.merging import Compared, Merging
from tests.merge.fleet import Device, Fleet
from tests.merge.view import check_view

PATH = "notes.txt"
BEFORE = b"".join(b"line %d\n" % number for number in range(9))
ADAS = BEFORE.replace(b"line 1\n", b"ada's\n")
BOBS = BEFORE.replace(b"line 6\n", b"bob's\n")
BOTH = ADAS.replace(b"line 6\n", b"bob's\n")

Save: TypeAlias = Callable[[Device, bytes], None]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(2)
    yield fleet
    fleet.discard()


def merging(device: Device, room: Callable[[int], bool] = lambda length: False) -> Merging:
    def wait_signed(_: float) -> bool:
        device.sign()
        return True

    fs = device.rig.fs
    return merging_of(fs, device.rig.fetcher, wait_signed, room)


def merging_of(
    fs: FileSystem,
    fetcher: Fetcher,
    wait_signed: Callable[[float], bool],
    wait_for_room: Callable[[int], bool],
) -> Merging:
    """One without a volume: that signs, and makes room, in these ways."""
    around: Any = SimpleNamespace(wait_signed=wait_signed, wait_for_room=wait_for_room)
    return Merging(fs, Conflicts(fs), fetcher, around, around)


def merge(device: Device, path: str = PATH) -> Compared:
    found = merging(device).compare(path)
    assert found.merge.content is not None, found.merge.why
    merging(device).settle(path, found.mark, found.merge.content)
    return found


def in_place(device: Device, content: bytes, path: str = PATH) -> None:
    device.write(path, content)


def by_rename(device: Device, content: bytes, path: str = PATH) -> None:
    device.write("saved.tmp", content)
    device.move("saved.tmp", path)


def by_rename_later(device: Device, content: bytes) -> None:
    """The new file is signed before it gets the name."""
    device.write("saved.tmp", content)
    device.sign()
    device.move("saved.tmp", PATH)


def with_backup(device: Device, content: bytes) -> None:
    device.move(PATH, f"{PATH}~")
    device.write(PATH, content)
    device.remove(f"{PATH}~")


SAVES = [in_place, by_rename, by_rename_later, with_backup]


def tree(fleet: Fleet) -> dict[str, bytes]:
    """What all devices see after they have met."""
    fleet.meet()
    for device in fleet.devices:
        check_view(device)
        assert device.tree() == fleet[0].tree()
    return {path: one.content for path, one in fleet[0].tree().items()}


def settled(fleet: Fleet) -> dict[str, bytes]:
    found = tree(fleet)
    assert all(not Conflicts(device.rig.fs).all() for device in fleet.devices)
    return found


def earlier(device: Device, path: str = PATH) -> list[bytes]:
    """All versions of a file, the last first, as they are read."""
    device.sign()
    with device.rig.fs.committed(lambda tx: None) as (_, db):
        values = [one.content for one in Catalog(db, DEFAULT_RETENTION).versions([path.encode()])]
    merger = merging(device)
    return [merger._read(value) for value in values]


def begun(fleet: Fleet, content: bytes = BEFORE) -> None:
    fleet[0].write(PATH, content)
    fleet.meet()


# -- what is merged ------------------------------------------------------------------------------


@pytest.mark.parametrize("adas", SAVES)
@pytest.mark.parametrize("bobs", SAVES)
@pytest.mark.parametrize("by", [0, 1])
def test_changes_in_different_places_become_one_file(fleet: Fleet, adas: Save, bobs: Save, by: int) -> None:
    begun(fleet)
    adas(fleet[0], ADAS)
    bobs(fleet[1], BOBS)
    before = tree(fleet)
    assert len(before) == 2
    found = merge(fleet[by])
    assert found.path == PATH
    assert found.base == BEFORE
    assert [before[path] for path in found.places] == list(found.contents)
    assert found.places[0] == PATH
    assert settled(fleet) == {PATH: BOTH}
    for device in fleet.devices:
        assert earlier(device)[0] == BOTH
        assert {ADAS, BOBS, BEFORE} <= set(earlier(device))


def test_the_path_of_the_other_version_does_as_well_and_folders_are_merged_ones(fleet: Fleet) -> None:
    """Two machines have made the folder."""
    for device in fleet.devices:
        device.mkdir("docs")
    fleet[0].write("docs/notes", BEFORE)
    fleet.meet()
    fleet[0].write("docs/notes", ADAS)
    by_rename(fleet[1], BOBS, "docs/notes")
    fleet.meet()
    [one] = Conflicts(fleet[1].rig.fs).all()
    assert merge(fleet[1], one.path).places == ["docs/notes", one.path]
    assert settled(fleet) == {"docs": b"", "docs/notes": BOTH}


def test_what_both_append_is_in_the_order_in_which_it_was_signed(fleet: Fleet) -> None:
    begun(fleet, b"milk\n")
    fleet[0].write("another", b"")  # what ada signs is later
    fleet[0].sign()
    fleet[0].write(PATH, b"milk\nada's\n")
    fleet[1].write(PATH, b"milk\nbob's\n")
    fleet.meet()
    merged = [merging(device).compare(PATH).merge.content for device in fleet.devices]
    assert merged == [b"milk\nbob's\nada's\n"] * 2


def test_three_versions() -> None:
    fleet = Fleet(3)
    try:
        begun(fleet)
        cyds = BEFORE + b"cyd's\n"
        in_place(fleet[0], ADAS)
        by_rename(fleet[1], BOBS)
        in_place(fleet[2], cyds)
        fleet.meet()
        merge(fleet[2])
        assert settled(fleet) == {PATH: BOTH + b"cyd's\n"}
        assert {ADAS, BOBS, cyds} <= set(earlier(fleet[0]))
    finally:
        fleet.discard()


def test_attributes_stay_and_the_kernel_hears(fleet: Fleet) -> None:
    begun(fleet)
    fleet[0].rig.fs.set_xattr(fleet[0].rig.tx, fleet[0].at(PATH), b"user.mine", b"1", 0)
    fleet.meet()
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    [copy] = Conflicts(fleet[1].rig.fs).all()
    changes: list[Change] = []
    fleet[1].rig.fs.shown.listen(changes.extend)
    merge(fleet[1])
    fleet.meet()
    assert {one.name for one in changes} >= {copy.path.encode(), None}
    assert Change(fleet[1].at(PATH).ino, aspect=Aspect.CONTENT) in changes
    for device in fleet.devices:
        assert device.rig.fs.attributes.get_xattr(device.rig.tx, device.at(PATH), b"user.mine") == b"1"


def test_two_devices_that_merge_the_same_have_no_conflict(fleet: Fleet) -> None:
    begun(fleet)
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    for device in fleet.devices:
        merge(device)
    assert settled(fleet) == {PATH: BOTH}


def test_the_base_is_the_last_version_that_all_come_from(fleet: Fleet) -> None:
    begun(fleet, b"older\n" + BEFORE)
    for content in (b"old\n" + BEFORE, BEFORE):
        by_rename(fleet[1], content)
        fleet.meet()
    in_place(fleet[0], ADAS)
    fleet[0].sign()
    in_place(fleet[0], ADAS + b"more\n")
    by_rename(fleet[1], BOBS)
    fleet.meet()
    assert merge(fleet[1]).base == BEFORE
    assert settled(fleet) == {PATH: BOTH + b"more\n"}


@pytest.mark.parametrize("save", SAVES)
def test_one_who_has_taken_a_change_back_has_changed_nothing(fleet: Fleet, save: Save) -> None:
    begun(fleet)
    save(fleet[0], ADAS)
    fleet[0].sign()
    save(fleet[0], BEFORE)
    in_place(fleet[1], BOBS)
    fleet.meet()
    merge(fleet[1])
    assert settled(fleet) == {PATH: BOBS}


# -- what is for a person ------------------------------------------------------------------------


def refused(fleet: Fleet, why: str) -> Compared:
    before = tree(fleet)
    found = merging(fleet[0]).compare(PATH)
    assert found.merge.content is None
    assert why in found.merge.why
    assert tree(fleet) == before
    return found


def test_changes_that_meet(fleet: Fleet) -> None:
    begun(fleet)
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BEFORE.replace(b"line 1\n", b"bob's\n"))
    fleet.meet()
    found = refused(fleet, "the same lines")
    assert found.base == BEFORE
    merging(fleet[0]).settle(PATH, found.mark, b"a person's\n")
    assert settled(fleet) == {PATH: b"a person's\n"}


@pytest.mark.parametrize("bobs", [b"\0" + BOBS, b"\xff" + BOBS])
def test_what_is_no_text(fleet: Fleet, bobs: bytes) -> None:
    begun(fleet)
    in_place(fleet[0], ADAS)
    in_place(fleet[1], bobs)
    fleet.meet()
    refused(fleet, "text")


def test_files_that_both_have_made(fleet: Fleet) -> None:
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    assert refused(fleet, "not known").base is None


@pytest.mark.parametrize("adas", SAVES)
@pytest.mark.parametrize("bobs", SAVES)
def test_an_edit_that_another_one_overtook_takes_nothing_from_it(
    fleet: Fleet, adas: Save, bobs: Save
) -> None:
    """Ada edits the first version, and before she signs that hears of bob's. Her update depends on his, but
    her text does not contain what he wrote: it is not what she took away."""
    begun(fleet)
    bobs(fleet[1], BOBS)
    fleet[1].sign()
    adas(fleet[0], ADAS)
    fleet[0].receive(fleet[1].log())
    fleet[0].sign()
    [theirs] = [path for path, one in fleet[1].tree().items() if one.content == BOBS]
    fleet[1].write(theirs, BOBS + b"bob's, too\n")
    before = tree(fleet)
    assert {ADAS, BOBS + b"bob's, too\n"} <= set(before.values())
    found = merging(fleet[0]).compare(PATH)
    assert found.base != BOBS
    if found.merge.content is not None:
        assert b"bob's\n" in found.merge.content


def test_what_was_received_since_the_own_last_update_is_not_certainly_known(fleet: Fleet) -> None:
    """The first version that is known does: the merge is the same."""
    begun(fleet, b"older\n" + BEFORE)
    in_place(fleet[0], b"old\n" + BEFORE)
    fleet[0].sign()
    in_place(fleet[0], BEFORE)
    fleet.meet()
    by_rename(fleet[0], ADAS)
    by_rename(fleet[1], BOBS)
    fleet.meet()
    assert merge(fleet[1]).base == b"older\n" + BEFORE
    assert settled(fleet) == {PATH: BOTH}


def test_files_that_both_have_made_where_one_was_removed(fleet: Fleet) -> None:
    begun(fleet)
    fleet[0].remove(PATH)
    fleet.meet()
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    assert refused(fleet, "not known").base is None


def test_an_older_version_that_is_not_kept(fleet: Fleet) -> None:
    begun(fleet)
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    fleet[0].rig.db.rows.execute("DELETE FROM past")
    refused(fleet, "not known")


def test_an_older_version_that_is_too_large(fleet: Fleet) -> None:
    begun(fleet, b"line\n" * (1 << 20))
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    assert refused(fleet, "not known").base is None


def test_merges_of_the_same_versions_that_differ(fleet: Fleet) -> None:
    """Each comes from both, so that neither version is the one before."""
    begun(fleet)
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    for device in fleet.devices:
        found = merging(device).compare(PATH)
        merging(device).settle(PATH, found.mark, BOTH + device.name.encode())
    fleet.meet()
    assert refused(fleet, "not known").base is None


def test_many_versions(fleet: Fleet) -> None:
    begun(fleet)
    for number in range(8):
        fleet[1].write(PATH, b"bob's %d\n" % number)
        fleet[1].sign()
        fleet[0].write(PATH, b"ada's %d\n" % number)
        fleet[0].receive(fleet[1].log())
        fleet[0].sign()
        if number < 7:
            assert len(merging(fleet[0]).compare(PATH).contents) == number + 2
    with pytest.raises(UsageError, match="9 versions"):
        merging(fleet[0]).compare(PATH)


def test_of_thousands_a_few_are_looked_at_while_programs_wait(fleet: Fleet) -> None:
    """A member can make as many as it likes. All that are gone by then are looked at no more."""
    names = [f"{number}.txt" for number in range(120)]
    for number, device in enumerate(fleet.devices):
        for name in names:
            device.write(name, b"%d" % number)
        device.sign()
    fleet.meet()
    found = iter(merging(fleet[0]).waiting())
    assert next(found).path == names[0]
    for name in names:
        fleet[0].remove(name)
    assert 0 < len(list(found)) < 100


def test_a_folder_and_a_file(fleet: Fleet) -> None:
    fleet[0].mkdir(PATH)
    fleet[1].write(PATH, b"file")
    fleet.meet()
    with pytest.raises(UsageError, match="not all that has this name is a file"):
        merging(fleet[0]).compare(PATH)


@pytest.mark.parametrize("path", ["plain", "none", "folder/none", ""])
def test_where_there_is_no_conflict(fleet: Fleet, path: str) -> None:
    fleet[0].write("plain", b"plain")
    with pytest.raises(UsageError):
        merging(fleet[0]).compare(path)
    with pytest.raises(UsageError):
        merging(fleet[0]).settle(path, "", b"")


# -- what happens between looking and deciding ---------------------------------------------------


def test_what_was_written_a_moment_ago_is_signed_first(fleet: Fleet) -> None:
    """So that it is an earlier version afterwards."""
    begun(fleet)
    in_place(fleet[0], ADAS)
    by_rename(fleet[1], BOBS)
    fleet.meet()
    place = merging(fleet[0]).compare(PATH).places[0]
    latest = fleet[0].read(place) + b"a moment ago\n"
    fleet[0].write(place, latest)
    fs = fleet[0].rig.fs
    late = merging_of(fs, fleet[0].rig.fetcher, lambda _: False, lambda _: False)
    with pytest.raises(HybrisError, match="could not be signed in time"):
        late.compare(PATH)
    merge(fleet[0])
    assert latest in earlier(fleet[0])


@pytest.mark.parametrize("which", [0, 1])
def test_what_changed_since_it_was_compared_is_not_overwritten(fleet: Fleet, which: int) -> None:
    begun(fleet)
    in_place(fleet[0], ADAS)
    by_rename(fleet[1], BOBS)
    fleet.meet()
    found = merging(fleet[0]).compare(PATH)
    fleet[0].write(found.places[which], b"newer\n")
    with pytest.raises(HybrisError, match="a program is writing to it"):
        merging(fleet[0]).settle(PATH, found.mark, b"merged\n")
    fleet[0].sign()
    with pytest.raises(HybrisError, match="another version came"):
        merging(fleet[0]).settle(PATH, found.mark, b"merged\n")
    assert b"newer\n" in tree(fleet).values()
    assert b"merged\n" not in tree(fleet).values()


def test_another_device_has_settled_it(fleet: Fleet) -> None:
    begun(fleet)
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    fleet.meet()
    found = merging(fleet[0]).compare(PATH)
    Conflicts(fleet[1].rig.fs).keep(PATH)
    kept = settled(fleet)
    with pytest.raises(UsageError, match="no conflict"):
        merging(fleet[0]).settle(PATH, found.mark, b"merged\n")
    assert settled(fleet) == kept


def test_a_full_cache_changes_nothing(fleet: Fleet) -> None:
    begun(fleet)
    in_place(fleet[0], ADAS)
    in_place(fleet[1], BOBS)
    before = tree(fleet)
    found = merging(fleet[0]).compare(PATH)
    journal = fleet[0].rig.journal
    budget, journal.budget = journal.budget, 0
    asked: list[int] = []

    def none(length: int) -> bool:
        asked.append(length)
        return False

    with pytest.raises(OSError, match="budget"):
        merging(fleet[0], none).settle(PATH, found.mark, b"merged\n")
    journal.budget = budget
    assert asked == [len(b"merged\n")]
    assert tree(fleet) == before
    merging(fleet[0]).settle(PATH, found.mark, b"merged\n")
    assert settled(fleet) == {PATH: b"merged\n"}


# -- any lives of a file -------------------------------------------------------------------------


@given(st.data())
def test_no_line_that_anybody_wrote_is_lost(data: st.DataObject) -> None:
    """Programs on three devices read any version that is there and add a line to it. Nobody takes a line
    away, so each is there after whatever was merged."""
    fleet = Fleet(3)
    try:
        begun(fleet)
        tokens: list[bytes] = []
        for _ in range(data.draw(st.integers(2, 14))):
            device = fleet[data.draw(st.integers(0, 2))]
            match data.draw(st.sampled_from(["edit", "edit", "edit", "send", "send", "sign", "merge"])):
                case "edit":
                    names = sorted(device.tree())
                    path = data.draw(st.sampled_from(names))
                    lines = device.read(path).split(b"\n")
                    tokens.append(b"token %d" % len(tokens))
                    lines.insert(data.draw(st.integers(0, len(lines) - 1)), tokens[-1])
                    save = data.draw(st.sampled_from([in_place, by_rename]))
                    save(device, b"\n".join(lines), path)
                case "send":
                    fleet.send(data.draw(st.integers(0, 2)), fleet.devices.index(device))
                case "sign":
                    device.sign()
                case _:
                    merge_all(device)
        fleet.meet()
        merge_all(fleet[data.draw(st.integers(0, 2))])
        found = b"\n".join(tree(fleet).values()).split(b"\n")
        assert set(tokens) <= set(found)
    finally:
        fleet.discard()


def merge_all(device: Device) -> None:
    for path in {one.of for one in Conflicts(device.rig.fs).all()}:
        found = merging(device).compare(path)
        if found.merge.content is not None:
            merging(device).settle(path, found.mark, found.merge.content)
