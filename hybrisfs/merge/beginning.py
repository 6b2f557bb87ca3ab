"""Making nodes of their own of files that belonged to another node: its old inode, or a conflict copy."""

from __future__ import annotations

from functools import partial

from hybrisfs.merge.names import Author, number_names
from hybrisfs.registers.tree import attr_key, content_key, place_key
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["begin_beside", "begin_node"]


def begin_node(tx: Transaction, fs: FileSystem, inode: Inode, former: bytes) -> None:
    """Make a file with one name, which was node *former* or a copy of it, a node of its own in the next
    update."""
    directory = fs.inodes.find(tx, tx.places.parent_of(inode.ino))
    fs.inodes.give_new_id(tx, inode, None if directory is None else fs.borders.inside(tx, directory))
    inode.attr_stamp = inode.content_stamp = 0
    fs.inodes.touch(inode)
    for key in (place_key(inode.id, 0), attr_key(inode.id), content_key(inode.id)):
        fs.changes.mark(key, inode.ino)
    fs.facets.inherit(tx, inode, former)


def begin_beside(
    tx: Transaction, fs: FileSystem, inode: Inode, parent: int, name: bytes, author: Author, former: bytes
) -> bytes:
    """`begin_node` for a file without a name: it wants *name* in directory *parent*. If that name is taken,
    the file gets a conflict name, which contains *author*, and its place says so (`unsigned.unsigned_place`).
    Returns the name under which it is shown."""
    places = tx.places
    shown, wanted = name, None
    if places.is_taken(parent, name):
        [shown] = number_names(name, [author], partial(places.is_taken, parent))
        wanted = name
    places.insert(parent, shown, inode.ino, 0, 0, wanted=wanted)
    inode.nlink = 1
    fs.inodes.disturbed.update(((parent, name), (parent, shown)))
    begin_node(tx, fs, inode, former)
    return shown
