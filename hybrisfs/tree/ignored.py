"""Nodes that stay on this device, because ignore rules match them (`hybrisfs.registers.ignore_rules`).

A node is *ignored* while three things hold: no update names it, none of its bytes are in chunks, and the
rules match all of its names. All of that is in rows that are committed with what programs do, so a crash
forgets nothing: whether a node is ignored is found out again. Its bytes are extents for as long, which
nothing evicts, cuts or uploads.

To the view it is a node that is not signed yet (`hybrisfs.tree.changes`), only for longer. So what other
devices do meets it by the rules for unsigned changes: a folder that they remove stays here with what is
ignored in it, a file of theirs that wants its name stands beside it.

What an update names stays synced, whatever rules come and wherever it moves, as git goes on with what is
tracked. So do

* a node that takes the name of an ignored one: programs save a file by putting another in its place;
* the folders on the way to one.

Rules are looked at when a cut is about to be taken (`sift`): what they match is set aside. It is looked at
again when it gets a name, when the rules change, and when folders move.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from hybrisfs.errors import HybrisError
from hybrisfs.kinds import IGNORE_RULE, KINDS, NODE, PLACE, Trait
from hybrisfs.registers.ignore_rules import Ranking, Rules, parse_pattern, pattern_of
from hybrisfs.registers.tree import attr_key, content_key, place_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import staged_bytes, staged_bytes_of
from hybrisfs.topic import Topic
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.content import FileBytes, Missing, ReceivedContent
from hybrisfs.tree.facets import Facets
from hybrisfs.tree.inodes import Inode, InodeTable
from hybrisfs.tree.unseen import Change

__all__ = ["Ignored", "RULES_FILE", "RuleFiles"]

RULES_FILE: Final = b".hybrisfsignore"
_MOST_BYTES: Final = 64 << 10  # of a file that are read
_MOST_LINES: Final = 1000
_MOST_KNOWN: Final = 1000  # files that are kept in mind
_NONE: Final = Rules()


class _Known(NamedTuple):
    """What a file says, and by what another content would be noticed."""

    version: tuple[int, int, int]
    rules: Rules


class RuleFiles:
    """The files called `.hybrisfsignore` of one volume, under its lock: the ignore rules of the folder that
    each is in.

    They are synced like any file, so their bytes may be elsewhere. Until they are here nobody knows what the
    rules say (`unread`).
    """

    def __init__(self, inodes: InodeTable, content: FileBytes, received: ReceivedContent) -> None:
        self._inodes = inodes
        self._content = content
        self._received = received
        self._known: dict[int, _Known] = {}
        self.unread: set[int] = set()
        """The inodes of those that somebody has asked for, and whose bytes are elsewhere."""

    def rules_in(self, tx: Transaction, folder: int) -> Rules | None:
        """The rules of a folder, which may be none; None when they are not known yet."""
        place = tx.places.find(folder, RULES_FILE)
        inode = None if place is None else self._inodes.find(tx, place[0])
        if inode is None or not inode.is_file:
            return _NONE
        known = self._known.get(inode.ino)
        if known is not None and known.version == _version(inode):
            return known.rules
        text = self._read(tx, inode)
        if text is None:
            self.unread.add(inode.ino)
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        rules = Rules(_patterns(text))
        self._known[inode.ino] = _Known(_version(inode), rules)
        return rules

    def _read(self, tx: Transaction, inode: Inode) -> bytes | None:
        """The first bytes of a file; None when they are elsewhere. Nobody obeys what is damaged."""
        try:
            lacking = self._received.lacking(tx, inode)
            found = lacking or self._content.read(tx, inode, 0, _MOST_BYTES)
        except (OSError, HybrisError):
            return b""
        return None if isinstance(found, Missing) else found

    def have_changed(self, tx: Transaction) -> bool:
        """Whether a file says something else than when it was read last, or can be read now."""
        changed = [
            ino
            for ino, known in self._known.items()
            if (inode := self._inodes.find(tx, ino)) is None or _version(inode) != known.version
        ]
        for ino in changed:
            del self._known[ino]
        come = {ino for ino in self.unread if self._is_here(tx, ino)}
        self.unread -= come
        return bool(changed or come)

    def _is_here(self, tx: Transaction, ino: int) -> bool:
        inode = self._inodes.find(tx, ino)
        return inode is None or inode.orphan or self._read(tx, inode) is not None


def _version(inode: Inode) -> tuple[int, int, int]:
    return inode.content_stamp, inode.size, inode.mtime


def _patterns(text: bytes) -> Iterator[str]:
    """The patterns of a file, one a line; what is none is left out, like comments."""
    for line in text.decode(errors="replace").splitlines()[:_MOST_LINES]:
        with suppress(ValueError):
            yield parse_pattern(line)


_DIRECT: Final = [kind for kind in KINDS if Trait.DIRECT in kind.traits]


class Ignored:
    """Those of one volume, under its lock."""

    def __init__(
        self,
        tx: Transaction,
        inodes: InodeTable,
        changes: Changes,
        facets: Facets,
        files: RuleFiles,
    ) -> None:
        self._inodes = inodes
        self._changes = changes
        self._facets = facets
        self._files = files
        self.ranking: Final = Ranking()
        """The rules of the volume."""
        self._rules = Rules()  # the first of them
        self._roots = set[int]()  # what is aside in a folder that is not; and some that are so no more
        self._undecided = set[int]()  # what is aside until the rules of its folders are known
        self._to_read = set[int]()  # folders that have got rules from other devices
        self._again = False  # whether what is aside is to be looked at again
        self.unread = Topic[[]]()
        """The bytes of `unread_files` are wanted here."""
        self._has_files = False  # whether there may be files with rules
        self.look_for_files(tx)
        self.rules_changed(tx)

    def look_for_files(self, tx: Transaction) -> None:
        """The view has become another one as a whole."""
        self._has_files = self._has_files or tx.places.is_any_called(RULES_FILE)

    # -- what changes the answer -----------------------------------------------------------------

    def rules_changed(self, tx: Transaction, keys: Iterable[bytes] | None = None) -> None:
        """Read the rules again; *keys*: of those that may have changed."""
        registers = tx.registers
        found = (
            registers.with_prefix(IGNORE_RULE.prefix)
            if keys is None
            else {key: registers.values(key) for key in keys}
        )
        self.ranking.note(found, found)
        patterns = tuple(map(pattern_of, self.ranking.first()))
        if patterns != self._rules.patterns:
            self._rules = Rules(patterns)
            self._look_again()

    def moved(self, inode: Inode) -> None:
        """A program has given a node another name. A folder changes the paths of what is in it."""
        if inode.is_directory:
            self._look_again()

    def shown(self, changes: Sequence[Change]) -> None:
        """Other devices have changed the view."""
        folders = {one.ino for one in changes if one.name == RULES_FILE}
        if folders:
            self._has_files = True
            self._to_read |= folders
            self._look_again()
        if any(one.gone is not None and stat.S_ISDIR(one.gone[1]) for one in changes):
            self._look_again()

    def _look_again(self) -> None:
        self._again = True
        if self._roots or self._to_read:
            self._changes.announce()

    def nameless(self, tx: Transaction, inode: Inode) -> None:
        """A node has lost its last name."""
        if inode.ino in self._changes.aside:
            self._undecided.discard(inode.ino)
            self._changes.take_back(inode.ino, self._registers_of(tx, inode))

    # -- the answer ------------------------------------------------------------------------------

    @property
    def nodes(self) -> set[int]:
        """The inodes that have been set aside because they are ignored."""
        return self._changes.aside - self._undecided

    @property
    def undecided(self) -> bool:
        """Whether something waits until the rules of its folders are known."""
        return bool(self._undecided)

    @property
    def unread_files(self) -> Collection[int]:
        """The inodes of files with rules whose bytes are elsewhere."""
        return self._files.unread

    def covers(self, tx: Transaction, inode: Inode) -> bool:
        """Whether a node is ignored, set aside already or not."""
        return self._are_any() and self._is_ignored(tx, inode, self._look()) is True

    def _are_any(self) -> bool:
        return self._has_files or bool(self._rules)

    def _look(self) -> _Look:
        return _Look(self._rules, self._files if self._has_files else None)

    def pending_nodes(self, tx: Transaction) -> int:
        """How many nodes have changes that the clouds are to get."""
        return self._changes.pending_nodes(tx) + len(self._undecided)

    def measure(self, tx: Transaction) -> tuple[int, int]:
        """How many files and folders have been set aside, and how many bytes they take."""
        nodes = len(self._changes.aside) - len(self._undecided)
        return (nodes, staged_bytes(tx) - self.pending_bytes(tx)) if nodes else (0, 0)

    def topmost(self, tx: Transaction) -> Iterator[Inode]:
        """What has been set aside in folders that have not, the oldest first."""
        for ino in sorted(self._roots & self.nodes):
            if not self._changes.aside.issuperset(tx.places.parents_of(ino)):
                yield self._inodes.get(tx, ino)

    def pending_bytes(self, tx: Transaction) -> int:
        """How many bytes that are not in chunks yet are to go to the clouds; inodes have been flushed."""
        ignored = self.nodes
        if not ignored:
            return staged_bytes(tx)
        if len(ignored) < self._changes.waiting:
            return staged_bytes(tx) - staged_bytes_of(tx, ignored)
        waiting = {ino for _, ino, _, _ in self._changes.spans()}
        return staged_bytes_of(tx, (waiting | self._undecided) - ignored)

    def _is_ignored(self, tx: Transaction, inode: Inode, look: _Look) -> bool | None:
        """None: nobody knows yet."""
        if inode.attr_stamp or inode.stored or inode.orphan or inode.is_conflict_copy:
            return False
        verdicts = [
            look.ignores(tx, one.parent, one.plain, is_directory=inode.is_directory)
            for one in tx.places.of(inode.ino).values()
        ]
        if not verdicts or False in verdicts:
            return False
        return None if None in verdicts else True

    # -- setting aside ---------------------------------------------------------------------------

    def sift(self, tx: Transaction, most: int | None) -> bool:
        """Set aside what is ignored of the nodes of the *most* oldest changes (None: of all), and give back
        what is not any more; whether anything was. Nothing may be in a cut."""
        unread = len(self._files.unread)
        self._look_at_files(tx)
        look = self._look()
        released = self._look_at_aside(tx, look) if self._again else False
        if not self._are_any():
            return released
        keys: dict[int, list[bytes]] = {}
        for key, ino, _, _ in self._changes.spans() if most is None else self._changes.oldest(most)[0]:
            keys.setdefault(ino, []).append(key)
        aside, synced = list[Inode](), list[Inode]()
        for inode in (self._inodes.find(tx, ino) for ino in keys):
            if inode is not None and not inode.orphan:
                verdict = self._is_ignored(tx, inode, look)
                (synced if verdict is False else aside).append(inode)
                self._note(inode, undecided=verdict is None)
        for inode in aside:
            self._set_aside(tx, inode, keys[inode.ino])
        for inode in synced:
            if inode.ino in self._changes.aside:
                self._release(tx, inode)
            released |= self._keep_way_to(tx, inode, keys[inode.ino], look)
        if len(self._files.unread) > unread:
            self.unread()
        return released or bool(aside)

    def _look_at_files(self, tx: Transaction) -> None:
        if any(name == RULES_FILE for _, name in self._inodes.disturbed):
            self._has_files = self._again = True
        if self._has_files and self._files.have_changed(tx):
            self._again = True

    def _look_at_aside(self, tx: Transaction, look: _Look) -> bool:
        """Give back what is not ignored any more, and all that was undecided; whether there is any."""
        self._again, released = False, False
        for folder in self._to_read:
            look.read(tx, folder)
        self._to_read.clear()
        for ino in sorted(self._roots | self._undecided):
            inode = self._inodes.find(tx, ino)
            if ino not in self._changes.aside or inode is None:
                self._roots.discard(ino)
            elif ino in self._undecided or not self._is_ignored(tx, inode, look):
                self._release(tx, inode)
                released = True
        return released

    def _note(self, inode: Inode, *, undecided: bool) -> None:
        (self._undecided.add if undecided else self._undecided.discard)(inode.ino)

    def _set_aside(self, tx: Transaction, inode: Inode, keys: Sequence[bytes]) -> None:
        inode.dirty_since = 0.0
        inode.forced = False
        self._changes.set_aside(inode.ino, [key for key in keys if key[NODE] == inode.id])
        if not self._changes.aside.issuperset(tx.places.parents_of(inode.ino)):
            self._roots.add(inode.ino)

    def _keep_way_to(self, tx: Transaction, inode: Inode, keys: Sequence[bytes], look: _Look) -> bool:
        """Sync the ignored folders above a synced node, in the same update as its name; whether there are
        any."""
        found: list[Inode] = []
        if inode.nlink == 1 and not (inode.attr_stamp or inode.stored):
            return False  # it would be ignored, were its only folder
        for parent in tx.places.parents_of(inode.ino):
            if look.read(tx, parent).ignored is False:
                continue
            for ino in (parent, *tx.places.above(parent)):
                folder = self._inodes.get(tx, ino)
                if folder.attr_stamp or self._is_ignored(tx, folder, look) is False:
                    break
                found.append(folder)
        for folder in reversed(found):
            folder.keep_synced()
            self._inodes.touch(folder)
            if folder.ino in self._changes.aside:
                self._give_back(tx, folder)
                self._roots.update(self._aside_in(tx, folder.ino))
        for key in keys if found else ():
            if key[0] == PLACE:
                self._changes.mark(key, inode.ino)
        return bool(found)

    def _release(self, tx: Transaction, inode: Inode) -> None:
        """Give back a node and what is aside in it; the next `sift` looks at each of these."""
        waiting = [inode]
        while waiting:
            one = waiting.pop()
            self._give_back(tx, one)
            if one.is_directory:
                waiting += [self._inodes.get(tx, ino) for ino in reversed(self._aside_in(tx, one.ino))]

    def _aside_in(self, tx: Transaction, folder: int) -> list[int]:
        return [ino for ino, _ in tx.places.within(folder) if ino in self._changes.aside]

    def _give_back(self, tx: Transaction, inode: Inode) -> None:
        self._roots.discard(inode.ino)
        self._undecided.discard(inode.ino)
        self._changes.take_back(inode.ino, self._registers_of(tx, inode))
        inode.forced = True  # what stands under a new name must not be published without its bytes

    def _registers_of(self, tx: Transaction, inode: Inode) -> Iterator[bytes]:
        node = inode.id
        yield from (place_key(node, slot) for slot in tx.places.slots(inode.ino))
        yield from (attr_key(node), content_key(node))
        for kind in _DIRECT:
            yield from self._facets.of(tx, kind, node)


class _Scope(NamedTuple):
    """Rules that hold in a folder; None: those that nobody knows yet."""

    depth: int
    """How many names lead there from the root."""
    rules: Rules | None


class _Folder(NamedTuple):
    """A folder: *ignored*, or not, or (None) perhaps."""

    ignored: bool | None
    path: tuple[str, ...] = ()
    scopes: tuple[_Scope, ...] = ()
    """The nearest last."""


class _Look:
    """What rules say of names, at one moment: what it has found out of a folder holds for all that is in
    it."""

    def __init__(self, rules: Rules, files: RuleFiles | None) -> None:
        self._files = files
        self._rules = rules
        self._folders: dict[int, _Folder] = {}

    def ignores(self, tx: Transaction, folder: int, name: bytes, *, is_directory: bool) -> bool | None:
        """Whether they ignore a name in a folder; None: nobody knows yet."""
        at = self.read(tx, folder)
        return at.ignored if at.ignored is not False else _verdict(at, name, is_directory=is_directory)

    def read(self, tx: Transaction, folder: int) -> _Folder:
        """What holds in a folder."""
        way: list[tuple[int, bytes]] = []
        ino = folder
        while ino not in self._folders:
            place = tx.places.first(ino) if ino != ROOT_INO else None
            if place is None:  # the root, or open and gone
                self._folders[ino] = self._with_rules(tx, ino, _Folder(False, (), (_Scope(0, self._rules),)))
                break
            way.append((ino, place.plain))
            ino = place.parent
        at = self._folders[ino]
        for below, name in reversed(way):
            if at.ignored is False:
                verdict = _verdict(at, name, is_directory=True)
                at = _Folder(verdict, (*at.path, os.fsdecode(name)), at.scopes)
                at = self._with_rules(tx, below, at) if verdict is False else at
            self._folders[below] = at
        return at

    def _with_rules(self, tx: Transaction, ino: int, folder: _Folder) -> _Folder:
        rules = Rules() if self._files is None else self._files.rules_in(tx, ino)
        if rules is not None and not rules:
            return folder
        return folder._replace(scopes=(*folder.scopes, _Scope(len(folder.path), rules)))


def _verdict(folder: _Folder, name: bytes, *, is_directory: bool) -> bool | None:
    """What the rules say of a name in a folder that is not ignored: those of the nearest folder first. A file
    with rules is synced, so that they hold everywhere."""
    if name == RULES_FILE and not is_directory:
        return False
    path = (*folder.path, os.fsdecode(name))
    for scope in reversed(folder.scopes):
        if scope.rules is None:
            return None
        verdict = scope.rules.verdict(path[scope.depth :], is_directory=is_directory)
        if verdict is not None:
            return verdict
    return False
