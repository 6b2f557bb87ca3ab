"""Files that were another node, or a version of one, and go on as nodes of their own."""

from __future__ import annotations

from functools import partial

from hybrisfs.merge.names import Author, number_names
from hybrisfs.registers.tree import attr_key, content_key, place_key
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["begin_anew", "begin_beside"]


def begin_anew(fs: FileSystem, inode: Inode, former: bytes) -> None:
    """Let the next update tell of a file, which has one name, as of a new one. It was node *former*, or a
    copy of that. Under the volume's lock."""
    directory = fs.inodes.find(fs.places.parent_of(inode.ino))
    fs.inodes.identify_anew(inode, None if directory is None else fs.borders.inside(directory))
    inode.attr_stamp = inode.content_stamp = 0
    fs.inodes.touch(inode)
    for key in (place_key(inode.id, 0), attr_key(inode.id), content_key(inode.id)):
        fs.changes.mark(key, inode.ino)
    fs.facets.inherit(inode, former)


def begin_beside(
    fs: FileSystem, inode: Inode, parent: int, name: bytes, author: Author, former: bytes
) -> bytes:
    """`begin_anew` with a file that has no name: it wants *name* in directory *parent*. If that is taken, it
    stands beside it in conflict, and says so (`unsigned.unsigned_place`). Returns the name under which it is
    shown, which tells *author* if it is a conflict name."""
    places = fs.places
    shown, wanted = name, None
    if places.is_taken(parent, name):
        [shown] = number_names(name, [author], partial(places.is_taken, parent))
        wanted = name
    places.insert(parent, shown, inode.ino, 0, 0, wanted=wanted)
    inode.nlink = 1
    fs.inodes.disturbed.update(((parent, name), (parent, shown)))
    begin_anew(fs, inode, former)
    return shown
