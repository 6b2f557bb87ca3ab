"""What programs may see changed by an update, before it is taken in."""

from __future__ import annotations

from hybrisfs.receive.take import foreseen
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Place, attr_key, content_key, place_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.unseen import Change
from tests.tree.conftest import rig
from tests.tree.rig import Rig

__all__ = ["rig"]


def test_a_file_with_other_content_may_be_another_one_under_each_of_its_names(rig: Rig) -> None:
    inode = rig.make(b"file", b"content")
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"further name")
    found = foreseen(rig.tx, rig.fs, [(content_key(inode.id), b"whatever")])
    assert set(found) == {
        Change(inode.ino),
        Change(ROOT_INO, b"file"),
        Change(ROOT_INO, b"further name"),
    }


def test_attributes_do_not_take_the_name_away(rig: Rig) -> None:
    """A program may stand in the folder: it would not know any more where it is."""
    folder = rig.fs.get(rig.tx, rig.mkdir(b"folder"))
    assert foreseen(rig.tx, rig.fs, [(attr_key(folder.id), b"whatever")]) == [Change(folder.ino)]


def test_a_rename_is_about_both_names(rig: Rig) -> None:
    inode, folder = rig.make(b"file", b"content"), rig.fs.get(rig.tx, rig.mkdir(b"folder"))
    found = foreseen(rig.tx, rig.fs, [(place_key(inode.id, 0), Place(folder.id, b"moved").encode())])
    assert set(found) == {Change(inode.ino), Change(ROOT_INO, b"file"), Change(folder.ino, b"moved")}


def test_a_new_file_is_about_its_name(rig: Rig) -> None:
    """Somebody may have looked for it in vain."""
    found = foreseen(rig.tx, rig.fs, [(place_key(bytes(16), 0), Place(ROOT_ID, b"new").encode())])
    assert Change(ROOT_INO, b"new") in found


def test_what_is_not_well_formed_is_passed_over(rig: Rig) -> None:
    found = foreseen(
        rig.tx, rig.fs, [(place_key(b"x" * 16, 0), b"\xff" * 40), (b"k" + bytes(32), b""), (b"", b"")]
    )
    assert found == []
