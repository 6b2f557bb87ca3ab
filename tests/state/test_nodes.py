"""Nodes: their rows, attributes, and those that have no name."""

from __future__ import annotations

from hybrisfs.state.nodes import NodeRow
from tests.tree.rig import Rig


def row(ino: int, node: bytes, nlink: int = 1) -> NodeRow:
    return ino, node, 0o100644, 1, 2, 0, nlink, 3, 0, 4, 5, 6, None, 0, 0, 0


def test_a_node_keeps_its_id_whatever_else_changes(rig: Rig) -> None:
    nodes = rig.tx.nodes
    assert nodes.find(7) is None
    nodes.insert([row(7, b"\x07" * 16)])
    nodes.put([row(7, b"\x08" * 16, nlink=2), row(9, b"\x09" * 16)])
    assert nodes.find(7) == row(7, b"\x07" * 16, nlink=2)
    nodes.identify(7, b"\x08" * 16)
    assert nodes.find(7) == row(7, b"\x08" * 16, nlink=2)
    assert nodes.is_named(b"\x08" * 16) and not nodes.is_named(b"\x07" * 16)
    nodes.put([row(7, b"", nlink=0)])
    assert not nodes.is_named(b"\x08" * 16)
    nodes.remove(7)
    assert nodes.find(7) is None and nodes.find(9) is not None


def test_numbers_of_nodes_with_names_to_withdraw_are_taken(rig: Rig) -> None:
    nodes = rig.tx.nodes
    nodes.insert([row(9, b"\x09" * 16)])
    assert nodes.highest() == 9
    rig.fs.changes.mark(b"key", 12)
    rig.fs.flush(rig.tx)
    assert nodes.highest() == 12


def test_nodes_without_a_name_are_noted(rig: Rig) -> None:
    nodes = rig.tx.nodes
    nodes.note_nameless(9)
    nodes.note_nameless(9)
    nodes.note_nameless(7)
    assert sorted(nodes.nameless()) == [7, 9]
    nodes.forget_nameless(9)
    assert nodes.nameless() == [7]
    nodes.forget_nameless(7)


def test_extended_attributes(rig: Rig) -> None:
    nodes = rig.tx.nodes
    nodes.add_xattr(7, b"user.b", b"two")
    nodes.add_xattr(7, b"user.a", b"")
    nodes.add_xattr(8, b"user.a", b"other")
    assert nodes.xattrs(7) == [(b"user.a", b""), (b"user.b", b"two")]
    assert nodes.xattr_names(7) == [b"user.a", b"user.b"]
    assert nodes.xattr(7, b"user.a") == b"" and nodes.xattr(7, b"user.c") is None
    assert nodes.size_of_xattrs(7, but=b"user.a") == 9 and nodes.size_of_xattrs(7, but=b"") == 15
    assert nodes.remove_xattr(7, b"user.a") and not nodes.remove_xattr(7, b"user.a")
    nodes.clear_xattrs(7)
    assert nodes.xattrs(7) == [] and nodes.xattrs(8) == [(b"user.a", b"other")]
