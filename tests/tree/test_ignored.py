"""What ignore rules match stays on this device, and nothing is lost by a rule that comes or goes."""

from __future__ import annotations

import os

import pytest

from hybrisfs.kinds import CONTENT, PLACE
from hybrisfs.registers.ignore_rules import encode_rank, rule_key
from hybrisfs.registers.tree import attr_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from tests.tree.rig import Rig


def rule(rig: Rig, *patterns: str, there: bool = True) -> None:
    """What `hybrisfs ignore add` and `remove` do."""
    for rank, pattern in enumerate(patterns, 1):
        value = encode_rank(rank if there else 0)
        rig.sharing.signer.sign(rig.tx, [(rule_key(pattern), value)], 0)
    rig.fs.ignored.rules_changed(rig.tx)


def names_signed(rig: Rig) -> set[bytes]:
    """The ids of nodes that updates of this device name."""
    return {
        bytes(row[0])[1:17]
        for row in rig.db.rows.execute("SELECT key FROM register")
        if row[0][0] in (PLACE, CONTENT)
    }


def is_signed(rig: Rig, inode: Inode) -> bool:
    return bool(rig.registers.values(attr_key(inode.id)))


def is_ignored(rig: Rig, inode: Inode) -> bool:
    return rig.fs.ignored.covers(rig.tx, inode)


def test_what_matches_is_not_signed_nor_cut(rig: Rig) -> None:
    rule(rig, "*.o", "node_modules/")
    inode = rig.make(b"main.o", b"object")
    folder = rig.mkdir(b"node_modules")
    below = rig.make(b"index.js", b"code", folder)
    other = rig.make(b"main.c", b"source")
    rig.publish()
    assert is_signed(rig, other)
    for one in (inode, below, rig.fs.get(rig.tx, folder)):
        assert is_ignored(rig, one)
        assert not is_signed(rig, one)
    assert not is_ignored(rig, other)
    assert rig.fs.ignored.measure(rig.tx) == (3, len(b"objectcode"))
    assert rig.unpacked() == 1
    assert not rig.publish()


def sifted(rig: Rig) -> None:
    """What programs have done is signed, as far as it is to be."""
    while rig.publish(everything=True):
        pass
    rig.commit()


def test_it_is_found_again_after_a_crash(rig: Rig) -> None:
    rule(rig, "build/")
    folder = rig.mkdir(b"build")
    rig.make(b"a", b"bytes", folder)
    sifted(rig)
    rig.make(b"b", b"more", folder)
    rig.commit()
    rig = rig.crashed()
    build = rig.find(b"build")
    for name, content in ((b"a", b"bytes"), (b"b", b"more")):
        inode = rig.find(name, build.ino)
        assert rig.read(inode) == content
        assert is_ignored(rig, inode)
    sifted(rig)
    assert rig.fs.ignored.measure(rig.tx) == (3, 9)
    assert not is_signed(rig, build)
    rig.discard()


def test_a_removed_rule_lets_all_of_it_go(rig: Rig) -> None:
    rule(rig, "build/")
    folder = rig.mkdir(b"build")
    deep = rig.mkdir(b"deep", folder)
    inode = rig.make(b"a", b"bytes", deep)
    sifted(rig)
    assert rig.fs.changes.pending_nodes(rig.tx) == 1  # the root
    rule(rig, "build/", there=False)
    sifted(rig)
    assert all(is_signed(rig, one) for one in (inode, rig.find(b"build"), rig.fs.get(rig.tx, deep)))
    assert rig.fs.ignored.measure(rig.tx) == (0, 0)
    rig.pack()
    assert rig.unpacked() == 0


def test_a_rule_takes_what_is_not_signed_yet_and_leaves_what_is(rig: Rig) -> None:
    synced = rig.make(b"old.log", b"old")
    sifted(rig)
    new = rig.make(b"new.log", b"new")
    rule(rig, "*.log")
    sifted(rig)
    assert is_ignored(rig, new) and not is_signed(rig, new)
    assert not is_ignored(rig, synced)
    handle = rig.fs.open(rig.tx, synced.ino, os.O_WRONLY)
    rig.fs.write(rig.tx, synced, 0, b"OLD")
    rig.fs.release(rig.tx, handle)
    sifted(rig)
    assert rig.fs.changes.pending_nodes(rig.tx) > 0 and synced.content_stamp > 0
    assert synced.ino not in rig.fs.ignored.nodes


def test_a_new_name_decides_again(rig: Rig) -> None:
    rule(rig, "*.tmp")
    inode = rig.make(b"a.tmp", b"saved")
    sifted(rig)
    rig.fs.rename(rig.tx, ROOT_INO, b"a.tmp", ROOT_INO, b"b.tmp", 0)
    sifted(rig)
    assert inode.ino in rig.fs.ignored.nodes
    rig.fs.rename(rig.tx, ROOT_INO, b"b.tmp", ROOT_INO, b"a.txt", 0)
    sifted(rig)
    assert is_signed(rig, inode) and inode.ino not in rig.fs.ignored.nodes
    rig.fs.rename(rig.tx, ROOT_INO, b"a.txt", ROOT_INO, b"c.tmp", 0)
    sifted(rig)
    assert not is_ignored(rig, inode)
    assert rig.registers.values(attr_key(inode.id))


def test_a_folder_that_gets_another_name_takes_along_what_is_in_it(rig: Rig) -> None:
    rule(rig, "build/", "/here/out")
    build, here = rig.mkdir(b"build"), rig.mkdir(b"here")
    deep = rig.mkdir(b"deep", build)
    below, out = rig.make(b"a", b"bytes", deep), rig.make(b"out", b"x", here)
    sifted(rig)
    assert below.ino in rig.fs.ignored.nodes and out.ino in rig.fs.ignored.nodes
    rig.fs.rename(rig.tx, ROOT_INO, b"build", ROOT_INO, b"built", 0)
    sifted(rig)
    assert is_signed(rig, below) and is_signed(rig, rig.fs.get(rig.tx, deep))
    rig.fs.rename(rig.tx, ROOT_INO, b"here", ROOT_INO, b"there", 0)
    sifted(rig)
    assert is_signed(rig, out)
    assert rig.fs.ignored.measure(rig.tx) == (0, 0)


@pytest.mark.parametrize("crash", [False, True])
def test_what_takes_the_place_of_a_synced_file_is_synced(rig: Rig, crash: bool) -> None:
    """Programs save so. Others must not see the file go because a rule has come."""
    folder = rig.mkdir(b"conf")
    rig.make(b"settings", b"old", folder)
    sifted(rig)
    rule(rig, "conf/")
    saved = rig.make(b"settings.new", b"new", folder)
    sifted(rig)
    assert is_ignored(rig, saved)
    rig.fs.rename(rig.tx, folder, b"settings.new", folder, b"settings", 0)
    rig.commit()
    if crash:
        rig = rig.crashed()
    saved = rig.find(b"settings", rig.find(b"conf").ino)
    assert not is_ignored(rig, saved)
    sifted(rig)
    assert is_signed(rig, saved)
    rig.discard()


def test_a_synced_file_takes_the_folders_on_its_way_along(rig: Rig) -> None:
    rule(rig, "node_modules/")
    moved = rig.make(b"moved", b"synced")
    linked = rig.make(b"linked", b"linked")
    sifted(rig)
    modules = rig.mkdir(b"node_modules")
    deep, other = rig.mkdir(b"deep", modules), rig.mkdir(b"other", modules)
    stays = rig.make(b"stays", b"here", deep)
    sifted(rig)
    assert {modules, deep, other, stays.ino} == rig.fs.changes.aside
    rig.fs.rename(rig.tx, ROOT_INO, b"moved", deep, b"moved", 0)
    sifted(rig)
    assert all(is_signed(rig, rig.fs.get(rig.tx, ino)) for ino in (modules, deep, moved.ino))
    assert {other, stays.ino} == rig.fs.changes.aside
    rig.fs.link(rig.tx, linked.ino, other, b"second")
    sifted(rig)
    assert {stays.ino} == rig.fs.changes.aside
    rig.fs.rename(rig.tx, ROOT_INO, b"node_modules", ROOT_INO, b"modules", 0)
    sifted(rig)
    assert is_signed(rig, stays)


def test_all_names_of_a_file_have_to_match(rig: Rig) -> None:
    rule(rig, "*.o")
    inode = rig.make(b"a.o", b"object")
    sifted(rig)
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"b.o")
    sifted(rig)
    assert inode.ino in rig.fs.ignored.nodes
    rig.fs.link(rig.tx, inode.ino, ROOT_INO, b"kept")
    sifted(rig)
    assert inode.ino not in rig.fs.ignored.nodes and is_signed(rig, inode)


def test_what_is_removed_leaves_nothing_behind(rig: Rig) -> None:
    rule(rig, "build/")
    folder = rig.mkdir(b"build")
    rig.make(b"a", b"bytes", folder)
    sifted(rig)
    rig.fs.unlink(rig.tx, folder, b"a")
    rig.fs.rmdir(rig.tx, ROOT_INO, b"build")
    sifted(rig)
    assert not rig.fs.changes.aside
    assert rig.fs.ignored.measure(rig.tx) == (0, 0)
    assert not any(key[1:17] != bytes(16) for key in rig.fs.changes.unsigned)


def test_writing_to_it_wakes_nobody(rig: Rig) -> None:
    rule(rig, "*.log")
    inode = rig.make(b"a.log", b"line")
    sifted(rig)
    woken: list[None] = []
    rig.fs.changes.begun.listen(lambda: woken.append(None))
    handle = rig.fs.open(rig.tx, inode.ino, os.O_WRONLY)
    rig.fs.write(rig.tx, inode, 4, b"another")
    assert not woken
    rig.fs.release(rig.tx, handle)
    rig.make(b"ordinary")
    assert woken


@pytest.mark.parametrize("backwards", [False, True])
def test_a_file_that_is_written_for_ever_has_few_extents(rig: Rig, backwards: bool) -> None:
    rule(rig, "*.log")
    inode = rig.make(b"a.log")
    other = rig.make(b"b.log")
    sifted(rig)
    lines = [b"%07d\n" % number for number in range(400)]
    handle = rig.fs.open(rig.tx, inode.ino, os.O_WRONLY)
    for number in reversed(range(len(lines))) if backwards else range(len(lines)):
        rig.fs.write(rig.tx, inode, 8 * number, lines[number])
        rig.fs.write(rig.tx, other, 0, b"between")
        rig.fs.flush(rig.tx)
    rig.fs.release(rig.tx, handle)
    assert len(rig.fs.inodes.extents_of(rig.tx, inode)) <= 34
    assert rig.read(inode) == b"".join(lines)
    rig.commit()
    rig = rig.crashed()
    assert rig.read(rig.find(b"a.log")) == b"".join(lines)
    rig.discard()


# -- rules in files -------------------------------------------------------------------------------------


def test_a_folder_has_rules_of_its_own(rig: Rig) -> None:
    folder, other = rig.mkdir(b"folder"), rig.mkdir(b"other")
    deep = rig.mkdir(b"deep", folder)
    rules = rig.make(b".hybrisfsignore", b"# comment\n\n*.o\n[nonsense\n/only-here\n", folder)
    inside = [
        rig.make(b"a.o", b"1", folder),
        rig.make(b"b.o", b"2", deep),
        rig.make(b"only-here", b"3", folder),
    ]
    outside = [rig.make(b"a.o", b"4", other), rig.make(b"only-here", b"5", deep), rules]
    sifted(rig)
    assert {one.ino for one in inside} == rig.fs.ignored.nodes
    assert all(is_ignored(rig, one) for one in inside)
    assert all(is_signed(rig, one) for one in outside)
    handle = rig.fs.open(rig.tx, rules.ino, os.O_WRONLY | os.O_TRUNC)
    rig.fs.write(rig.tx, rules, 0, b"*.o\n!b.o\n")
    rig.fs.release(rig.tx, handle)
    sifted(rig)
    assert {inside[0].ino} == rig.fs.ignored.nodes
    assert is_signed(rig, inside[1]) and is_signed(rig, inside[2])
    rig.fs.unlink(rig.tx, folder, b".hybrisfsignore")
    sifted(rig)
    assert is_signed(rig, inside[0]) and not rig.fs.ignored.nodes


def test_the_nearest_rules_count(rig: Rig) -> None:
    rule(rig, "*.log", "build/", ".*")
    folder = rig.mkdir(b"folder")
    rig.make(b".hybrisfsignore", b"!keep.log\n!build/\n*.tmp\n", folder)
    kept, lost = rig.make(b"keep.log", b"1", folder), rig.make(b"other.log", b"2", folder)
    build = rig.mkdir(b"build", folder)
    below, tmp = rig.make(b"a", b"3", build), rig.make(b"a.tmp", b"4", build)
    ignored = rig.mkdir(b"build")
    rig.make(b".hybrisfsignore", b"!*.c\n", ignored)
    nothing_helps = rig.make(b"a.c", b"5", ignored)
    sifted(rig)
    assert all(is_signed(rig, one) for one in (kept, rig.fs.get(rig.tx, build), below))
    assert not any(is_signed(rig, one) for one in (lost, tmp, nothing_helps))


def test_rules_that_come_back_after_a_restart(rig: Rig) -> None:
    folder = rig.mkdir(b"folder")
    rig.make(b".hybrisfsignore", b"*.o\n", folder)
    sifted(rig)
    rig.make(b"a.o", b"object", folder)
    rig.commit()
    rig = rig.crashed()
    sifted(rig)
    assert rig.fs.ignored.measure(rig.tx) == (1, 6)
    rig.discard()
