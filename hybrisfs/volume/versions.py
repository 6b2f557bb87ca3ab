"""The versions of one volume, as people ask for them: listed, shown, restored; and their thinning out."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Final, NamedTuple

from hybrisfs.api import versions as api
from hybrisfs.api.status import VersionRoom
from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.merge.resolution import node_shown, signed_content
from hybrisfs.merge.signing import only_reads
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import Attr, attr_key, content_key, content_of
from hybrisfs.shown import quoted, shown
from hybrisfs.state.database import Snapshot
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.state.versions import known_since
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode, Intent
from hybrisfs.tree.unseen import Aspect, Change
from hybrisfs.versions.account import Account
from hybrisfs.versions.browser import HISTORY_NAME
from hybrisfs.versions.catalog import Catalog, Version
from hybrisfs.versions.contents import VersionReader, is_readable, size_of
from hybrisfs.versions.retention import RetentionRule
from hybrisfs.versions.thinning import Thinner
from hybrisfs.versions.tree import VersionNode, VersionTree, format_moment, parse_moment, whole_trees
from hybrisfs.write.relayer import Uploads

__all__ = ["Versions"]

_SECOND_NS: Final = 1_000_000_000
_SIGNED_WITHIN: Final = 60.0
_MOST_TRIES: Final = 3  # to restore a file that a program goes on writing
_NEW_FILE: Final = stat.S_IFREG | 0o644
_MOST_DEPTH: Final = 4096
_MOST_LEFT: Final = 100  # that an answer names
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class Versions:
    """Methods may be called from any thread, without the volume's lock. Paths are relative to the volume's
    root. They raise HybrisError or OSError."""

    def __init__(
        self,
        fs: FileSystem,
        committer: Committer,
        fetcher: Fetcher,
        thinner: Thinner,
        uploads: Uploads,
        volume: str,
    ) -> None:
        """*volume* is its name."""
        self._fs = fs
        self._time_ns = fs.environment.time_ns
        self._committer = committer
        self._fetcher = fetcher
        self._thinner = thinner
        self._uploads = uploads
        self._volume = volume
        self._note_rule()

    @property
    def rule(self) -> RetentionRule:
        """How long versions are kept."""
        return self._thinner.rule

    def keep(self, rule: RetentionRule) -> None:
        """Keep versions by this rule from now on; those that it does not keep go within the hour."""
        self._thinner.rule = rule
        self._note_rule()

    def _note_rule(self) -> None:
        with self._fs.state.transaction() as tx:
            tx.versions.keeps = not self.rule.is_off

    def facts(self) -> VersionRoom:
        """What `status` tells of them."""
        room = self._thinner.room
        return VersionRoom(str(self.rule), room.values, room.bytes)

    @contextmanager
    def _snapshot(self) -> Iterator[Snapshot]:
        self._committer.commit_now()
        with self._fs.state.snapshot() as db:
            yield db

    # -- looking ---------------------------------------------------------------------------------

    def all(self, path: str) -> api.Versions:
        """The versions of a file."""
        with self._snapshot() as db:
            found = self._versions(db, path)
            readable = [self._is_readable(db, one) for one in found]
            history = known_since(db)
        return api.Versions(
            name=self._volume,
            path=path,
            versions=[_described(number, one, readable[number]) for number, one in enumerate(found)],
            known_since=_seconds(history) if history else None,
        )

    def _versions(self, db: Snapshot, path: str) -> list[Version]:
        names = _names(path)
        found = Catalog(db, self.rule).kept(names, self._time_ns()) if names else []
        node = VersionTree(db, self._time_ns()).find(names) if not found else None
        if node is not None and stat.S_ISDIR(node.attr.mode):
            what = shown(path) if names else "the volume itself"
            raise UsageError(
                f"{what} is a folder, and has no versions of its own",
                "",
                "hybrisfs versions restore FOLDER --at 2h makes a folder what it was two hours ago; hybrisfs "
                "versions list --removed FOLDER lists what was removed from it.",
            )
        if not found:
            raise HybrisError(
                f"there is no file {path!r} in the volume, and none is known to have been there",
                "",
                "hybrisfs versions list --removed FOLDER shows what was removed from a folder.",
            )
        return found

    def newest(self, path: str) -> tuple[str, int | None]:
        """The device that wrote the present content of a file, and the number of the latest readable version
        before it, if there is one."""
        with self._snapshot() as db:
            found = self._versions(db, path)
            return found[0].device, self._before(db, found)

    def _before(self, db: Snapshot, found: Sequence[Version]) -> int | None:
        first = 1 if found[0].until is None else 0
        return next(
            (number for number in range(first, len(found)) if self._is_readable(db, found[number])), None
        )

    def _is_readable(self, db: Snapshot, version: Version) -> bool:
        return is_readable(db, version.content, self._list_here)

    def _list_here(self, identity: bytes) -> bytes | None:
        """The bytes of a list of chunks, if they are on this device."""
        with self._fs.state.transaction() as tx:
            ref = tx.chunks.find(identity)
            try:
                return None if ref is None else tx.chunks.read_whole(ref)
            except OSError:
                return None

    def log(self, path: str, limit: int) -> api.Changes:
        """Who changed what at a path when: the last *limit* changes."""
        names = _names(path)
        if not names:
            raise UsageError("name a file or a folder in the volume")
        with self._snapshot() as db:
            found = Account(db, Catalog(db, self.rule)).changes(names)
            history = known_since(db)
        if not found:
            raise HybrisError(f"there is no {path!r} in the volume, and none is known to have been there")
        return api.Changes(
            name=self._volume,
            path=path,
            changes=[
                api.Change(_seconds(one.moment), _seconds(one.signed), one.device, list(one.what))
                for one in found[:limit]
            ],
            more=len(found) > limit,
            known_since=_seconds(history) if history else None,
        )

    def removed(self, folder: str) -> api.RemovedFiles:
        """What was removed from a folder, or emptied in it, and is kept."""
        with self._snapshot() as db:
            catalog, names = Catalog(db, self.rule), _names(folder)
            found = sorted([*catalog.removed(names), *catalog.emptied(names)], key=lambda one: -one.moment)
        return api.RemovedFiles(
            name=self._volume,
            path=folder,
            removed=[
                api.Removed(
                    path=one.path,
                    kind=one.kind,
                    size=one.size,
                    removed=_seconds(one.moment),
                    device=one.device,
                    kept_until=_seconds(one.kept_until),
                )
                for one in found
            ],
        )

    def moments(self) -> api.Moments:
        """Moments of which the whole tree is kept, and the rule."""
        return api.Moments(self._volume, [format_moment(one) for one in self.rungs()], str(self.rule))

    def rungs(self) -> list[int]:
        """See `whole_trees`."""
        with self._fs.state.snapshot() as db:
            return whole_trees(db, self.rule, self._time_ns())

    # -- reading and restoring -------------------------------------------------------------------

    def reader(self, path: str, at: str | None, number: int | None) -> VersionReader:
        """The bytes of one version: the one of the moment *at*, the one with that *number* in the list, or
        else the latest readable one before the present content."""
        with self._snapshot() as db:
            if at is not None:
                node = self._then(db, path, at)
                if not stat.S_ISREG(node.attr.mode):
                    raise UsageError(f"{shown(path)} was not a file then")
                content = node.content
            else:
                content = self._chosen(db, path, number).content
        return VersionReader(self._fs, self._fetcher, content)

    def folder(self, path: str, at: str, after: str, limit: int) -> api.FolderThen:
        """The first *limit* names that were in a folder at the moment *at*, and sort behind *after* by their
        bytes."""
        with self._snapshot() as db:
            node, tree = self._then(db, path, at), VersionTree(db, _moment(at))
            if not stat.S_ISDIR(node.attr.mode):
                raise UsageError(f"{shown(path)} was not a folder then")
            behind = os.fsencode(after)
            found = [one for one in tree.children(node).items() if one[0] > behind][: limit + 1]
        entries = [
            api.FileThen(os.fsdecode(name), _kind(one), size_of(one.content), _seconds(one.attr.mtime))
            for name, one in found[:limit]
        ]
        return api.FolderThen(self._volume, path, entries, len(found) > limit)

    def preview(self, path: str, at: str, target: str | None, limit: int) -> api.Preview:
        """What `restore` would change; the first *limit* changes."""
        where = self._place(path, target)
        preview = api.Preview(self._volume, os.fsdecode(b"/".join(where)), [], 0, 0, 0, 0)
        restorer = Restorer(self._fs, self._fetcher, self._uploads)

        def note(place: Sequence[bytes], node: VersionNode) -> bool:
            with self._fs.state.transaction() as tx:
                outcome = restorer.outcome(tx, place, node.attr, node.content)
            is_folder = stat.S_ISDIR(node.attr.mode)
            if outcome.what is What.SAME:
                preview.same += not is_folder
            else:
                preview.made += outcome.what is What.MADE and not is_folder
                preview.changed += outcome.what is What.CHANGED
                preview.left += outcome.what is What.LEFT
                if len(preview.changes) < limit:
                    preview.changes.append(_previewed(place, node, outcome))
            return outcome.what is not What.LEFT

        with self._snapshot() as db:
            self._visit(VersionTree(db, _moment(at)), where, self._then(db, path, at), note)
        return preview

    def restore(self, path: str, at: str | None, number: int | None, target: str | None) -> api.Restored:
        """Put a file, or with *at* a folder with all that was in it, back, at *target* if that is given. What
        of a folder cannot be put back is passed over, and told."""
        if self._fs.read_only:
            raise only_reads()
        where = self._place(path, target)
        restored = api.Restored(self._volume, os.fsdecode(b"/".join(where)), 0)
        restorer = Restorer(self._fs, self._fetcher, self._uploads)

        def put(place: Sequence[bytes], node: VersionNode) -> bool:
            error = restorer.put(place, node.attr, node.content).error
            if error is not None and len(place) == len(where):
                raise error
            if error is not None:
                restored.left_files += 1
                if len(restored.left) < _MOST_LEFT:
                    restored.left.append(api.NotRestored(os.fsdecode(b"/".join(place)), _why(error)))
            return error is None

        with self._snapshot() as db:
            if at is not None:
                self._visit(VersionTree(db, _moment(at)), where, self._then(db, path, at), put)
            else:
                version = self._chosen(db, path, number)
                attr = VersionTree(db, version.since).attr(version.node)
                put(
                    where,
                    VersionNode(
                        (version.node,),
                        attr or Attr(_NEW_FILE, 0, 0, 0, version.signed),
                        version.content,
                        1,
                    ),
                )
        self._committer.commit_now()
        restored.files = restorer.files
        return restored

    def _place(self, path: str, target: str | None) -> list[bytes]:
        """Where something is to be restored. What is there now is signed then, and so becomes a version."""
        if not self._uploads.wait_signed(_SIGNED_WITHIN):
            raise HybrisError("what is there now could not be signed in time", "", "Try again in a while.")
        where = _names(path if target is None else target)
        if not where and target is not None:
            raise UsageError("a version needs a name to be restored as")
        if where[:1] == [HISTORY_NAME]:
            raise UsageError(f"nothing can be restored into {os.fsdecode(HISTORY_NAME)}", "it is the past")
        return where

    def _visit(
        self,
        tree: VersionTree,
        place: list[bytes],
        node: VersionNode,
        visit: Callable[[Sequence[bytes], VersionNode], bool],
        depth: int = 0,
    ) -> None:
        """Call *visit* for what was at a place, and for all that was below it, unless it returns False for
        what is above."""
        if depth > _MOST_DEPTH or not visit(place, node):
            return
        if stat.S_ISDIR(node.attr.mode):
            for name, child in tree.children(node).items():
                self._visit(tree, [*place, name], child, visit, depth + 1)

    def _then(self, db: Snapshot, path: str, at: str) -> VersionNode:
        node = VersionTree(db, _moment(at)).find(_names(path))
        if node is None:
            raise HybrisError(
                f"there was no {path!r} at {at}, as far as this machine knows",
                "",
                "hybrisfs versions list shows what is known of it.",
            )
        return node

    def _chosen(self, db: Snapshot, path: str, number: int | None) -> Version:
        found = self._versions(db, path)
        if number is None:
            number = self._before(db, found)
            if number is None:
                number = 1 if found[0].until is None else 0
                if number == len(found):
                    raise HybrisError(f"no version of {shown(path)} is kept but what is there now")
        if not 0 <= number < len(found):
            raise HybrisError(
                f"{shown(path)} has no version {number}",
                "",
                f"hybrisfs versions list {quoted(path)} shows those it has.",
            )
        return found[number]


def _names(path: str) -> list[bytes]:
    return [name for name in os.fsencode(path).split(b"/") if name not in (b"", b".")]


def _moment(text: str) -> int:
    moment = parse_moment(text)
    if moment is None:
        raise UsageError(
            f"{text!r} is not a moment",
            "",
            "For example 2h or 3d (ago), 2026-11-20, 2026-11-20T18:00 or 2026-11-20T17:00Z.",
        )
    return moment


def _seconds(moment: int) -> float:
    return moment / _SECOND_NS


def _kind(node: VersionNode) -> str:
    return _KINDS.get(stat.S_IFMT(node.attr.mode), "other")


def _why(error: HybrisError) -> str:
    """Without the advice, which is for somebody who asked for that one file."""
    return str(error).partition("\n")[0]


def _previewed(place: Sequence[bytes], node: VersionNode, outcome: Outcome) -> api.PreviewedFile:
    return api.PreviewedFile(
        path=os.fsdecode(b"/".join(place)),
        what=outcome.what.value,
        kind=_kind(node),
        size=size_of(node.content),
        why="" if outcome.error is None else _why(outcome.error),
    )


def _described(number: int, version: Version, readable: bool) -> api.Version:
    return api.Version(
        version=number,
        since=_seconds(version.since),
        until=None if version.until is None else _seconds(version.until),
        at=format_moment(version.since),
        signed=_seconds(version.signed),
        device=version.device,
        size=version.size,
        path=version.path,
        kept_until=None if version.kept_until is None else _seconds(version.kept_until),
        readable=readable,
    )


# -- putting back what files and folders were: an ordinary change of the tree, made here and now --------
# The bytes are named, not copied: nothing is uploaded again. What is there now becomes a version in its turn,
# and what has come since and was not there then stays.


class What(Enum):
    """What restoring does to what is at a path: nothing for the last two."""

    MADE = "made"
    CHANGED = "changed"
    SAME = "same"
    LEFT = "left"


class Outcome(NamedTuple):
    """What is done, to what is there now, or why it cannot be."""

    what: What
    inode: Inode | None = None
    error: HybrisError | None = None


class Restorer:
    """Changes the view of one volume; each call takes the volume's lock for one file or folder."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher, uploads: Uploads) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self._uploads = uploads
        self.files = 0
        """How many files have been put back."""

    def outcome(self, tx: Transaction, path: Sequence[bytes], attr: Attr, content: bytes | None) -> Outcome:
        """What `put` would do."""
        try:
            inode = self._found(tx, path)
            if stat.S_ISREG(attr.mode):
                self._require_bytes(tx, path, content)
            if inode is None:
                return Outcome(What.MADE)
            if stat.S_IFMT(inode.mode) != stat.S_IFMT(attr.mode) or inode.target != (attr.target or None):
                raise self._in_the_way(path)
        except HybrisError as error:
            return Outcome(What.LEFT, error=error)
        if stat.S_ISREG(attr.mode) and not self._shows(tx, inode, content):
            if inode.ino in self._fs.changes.aside or self._fs.ignored.covers(tx, inode):
                return Outcome(What.LEFT, error=self._only_here(path))
            return Outcome(What.CHANGED, inode)
        return Outcome(What.SAME, inode)

    def put(self, path: Sequence[bytes], attr: Attr, content: bytes | None) -> Outcome:
        """Let a path be what it was: a file with this content, or else what *attr* says; missing folders on
        the way are made. Nothing is changed if it is that, or if the outcome has an error. Raises OSError."""
        for _ in range(_MOST_TRIES):
            with self._fs.state.transaction() as tx:
                outcome = self.outcome(tx, path, attr, content)
                lacking = self._lacking(tx, outcome, content)
                if lacking is None and not self._would_lose(tx, outcome):
                    self._carry_out(tx, outcome, path, attr, content)
                    return outcome
            if lacking is not None:
                try:
                    self._fetcher.fetch(lacking.chunks)
                except ChunkUnavailable as error:
                    return Outcome(What.LEFT, error=self._unreadable(path, error))
            elif not self._uploads.wait_signed(_SIGNED_WITHIN):
                break
        return Outcome(What.LEFT, error=self._in_use(path))

    def _carry_out(
        self, tx: Transaction, outcome: Outcome, path: Sequence[bytes], attr: Attr, content: bytes | None
    ) -> None:
        if outcome.what is What.MADE:
            self._make(tx, path, attr, content)
        elif outcome.inode is not None and outcome.what is What.CHANGED:
            self._show_content(tx, outcome.inode, content, self._fs.inodes.now())
        if outcome.what in (What.MADE, What.CHANGED) and not stat.S_ISDIR(attr.mode):
            self.files += 1

    def _lacking(self, tx: Transaction, outcome: Outcome, content: bytes | None) -> Missing | None:
        """What has to be fetched before programs that have the file open can go on with that content."""
        inode = outcome.inode if outcome.what is What.CHANGED else None
        return self._fs.received.lacking_to_show(tx, content) if inode is not None and inode.handles else None

    def _would_lose(self, tx: Transaction, outcome: Outcome) -> bool:
        """Whether a program has written what would be replaced since all was signed: it is no version yet."""
        if outcome.inode is None or outcome.what is not What.CHANGED:
            return False
        key, changes = content_key(node_shown(tx, outcome.inode)), self._fs.changes
        return key in changes.unsigned and key not in changes.held

    def _shows(self, tx: Transaction, inode: Inode, content: bytes | None) -> bool:
        """Whether a file has this content, and no program has written to it since that was signed."""
        signed = signed_content(tx, inode)
        now = None if signed is None else signed.value
        return now == content and content_key(node_shown(tx, inode)) not in self._fs.changes.unsigned

    def _make(self, tx: Transaction, path: Sequence[bytes], attr: Attr, content: bytes | None) -> None:
        parent, name = self._parent(tx, path)
        inode = self._fs.make(
            tx, parent, name, attr.mode, attr.uid, attr.gid, rdev=attr.rdev, target=attr.target or None
        )
        self._made(tx, parent, name, inode, attr)
        if inode.is_file:
            self._show_content(tx, inode, content, attr.mtime)

    def _made(self, tx: Transaction, parent: int, name: bytes, inode: Inode, attr: Attr) -> None:
        for key, value in attr.xattrs:
            self._fs.set_xattr(tx, inode, key, value, 0)
        inode.mtime = attr.mtime
        self._fs.inodes.touch(inode)
        self._fs.flush(tx)
        self._fs.shown([Change(parent, name), Change(parent)])

    def _show_content(self, tx: Transaction, inode: Inode, content: bytes | None, mtime: int) -> None:
        fs = self._fs
        fs.inodes.intend(tx, inode, Intent.WRITE)
        fs.received.show(tx, inode, content)
        inode.mtime, inode.ctime = mtime, fs.inodes.now()
        fs.changes.mark(content_key(inode.id), inode.ino)
        fs.changes.mark(attr_key(inode.id), inode.ino)
        fs.flush(tx)
        self._fs.shown([Change(inode.ino, aspect=Aspect.CONTENT)])

    def _found(self, tx: Transaction, path: Sequence[bytes]) -> Inode | None:
        """What is at a path. Raises UsageError when a file is where it needs a folder."""
        inode: Inode | None = self._fs.get(tx, ROOT_INO)
        for index, name in enumerate(path):
            if inode is None:
                return None
            if not inode.is_directory:
                raise self._in_the_way(path[:index])
            inode = self._fs.lookup(tx, inode.ino, name)
        return inode

    def _parent(self, tx: Transaction, path: Sequence[bytes]) -> tuple[int, bytes]:
        """The folder, and the name in it; missing folders on the way are made."""
        parent = ROOT_INO
        for name in path[:-1]:
            inode = self._fs.lookup(tx, parent, name)
            if inode is None:
                above = self._fs.get(tx, parent)
                inode = self._fs.make(tx, parent, name, stat.S_IFDIR | 0o755, above.uid, above.gid)
                self._fs.shown([Change(parent, name), Change(parent)])
            parent = inode.ino
        return parent, path[-1]

    def _require_bytes(self, tx: Transaction, path: Sequence[bytes], content: bytes | None) -> None:
        for run in content_of(content).runs:
            if run.chunk is not None and tx.chunks.find(run.chunk) is None:
                raise HybrisError(
                    f"that version of {_named(path)} cannot be restored",
                    "no cloud has its bytes",
                    "hybrisfs versions list shows the others.",
                )

    @staticmethod
    def _only_here(path: Sequence[bytes]) -> HybrisError:
        return UsageError(
            f"{_named(path)} cannot be restored",
            "an ignore rule keeps what is there now on this machine only, so it would be lost",
            "Restore it under another name: --as.",
        )

    @staticmethod
    def _unreadable(path: Sequence[bytes], error: ChunkUnavailable) -> HybrisError:
        return HybrisError(f"{_named(path)} cannot be restored now", str(error), "Try again in a while.")

    @staticmethod
    def _in_use(path: Sequence[bytes]) -> HybrisError:
        return HybrisError(
            f"{_named(path)} was not restored", "a program is writing to it", "Try again in a while."
        )

    @staticmethod
    def _in_the_way(path: Sequence[bytes]) -> UsageError:
        return UsageError(
            f"{_named(path)} cannot be restored", "something else has that name now", "Choose another: --as."
        )


def _named(path: Sequence[bytes]) -> str:
    return shown(os.fsdecode(b"/".join(path))) if path else os.strerror(errno.ENOENT)
