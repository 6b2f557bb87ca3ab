"""The tree as others see it: what the signed updates rebuild is the tree as it was at each cut.

The model is a tree of nodes. At each cut it is copied. What a reader of the log then rebuilds must be that
copy, but for files that were open for writing: of those it may show all (name, attributes, bytes) as they
were at an earlier cut. Between cut and signature programs go on; what they remove meanwhile may be gone
already.
"""

from __future__ import annotations

import copy
import os
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import InodeLimits
from hybrisfs.tree.names import RENAME_EXCHANGE
from tests.surroundings import limited
from tests.tree.invariants import check_accounts, check_published
from tests.tree.replay import Reader, read_content
from tests.tree.rig import SMALL_BLOCKS, Rig, small_chunks

NAMES: Final = (b"a", b"b", b"\xff")
CHUNK: Final = 16
picks = st.integers(0, 30)


@dataclass(eq=False)
class Node:
    """A node as programs see it."""

    mode: int
    data: bytes = b""
    target: bytes = b""
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    entries: dict[bytes, Node] | None = None
    identity: bytes = b""

    def facts(self) -> tuple[object, ...]:
        return self.mode, self.data, self.target, tuple(sorted(self.xattrs.items()))


Path_ = tuple[bytes, ...]


def walk(root: Node) -> dict[Path_, Node]:
    """All nodes below *root* by path; folders before what is in them."""
    found: dict[Path_, Node] = {}
    waiting: list[tuple[Path_, Node]] = [((), root)]
    while waiting:
        path, folder = waiting.pop()
        for name, node in sorted((folder.entries or {}).items()):
            found[(*path, name)] = node
            if node.entries is not None:
                waiting.append(((*path, name), node))
    return found


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(
            Path(tempfile.mkdtemp(prefix="hybrisfs-machine-")),
            environment=limited(InodeLimits(most_loaded=4), small_chunks(CHUNK), SMALL_BLOCKS),
        )
        self.root = Node(stat.S_IFDIR | 0o755, entries={})
        self.open: dict[int, Node] = {}
        self.reader = Reader()
        self.seen: dict[bytes, tuple[object, ...]] = {}  # what was last published of each node
        self.removed: set[bytes] = set()  # since the cut
        self.renamed: set[bytes] = set()  # not held back: what stands under a new name has its bytes
        self.step = 0
        self.checks = 0
        self.committed = copy.deepcopy(self.root)
        self.rig.commit()

    def teardown(self) -> None:
        try:
            self.open.clear()
            self.publish(True, None)
        finally:
            self.rig.abandon()

    # -- helpers ---------------------------------------------------------------------------------

    def ino(self, path: Path_) -> int:
        ino = ROOT_INO
        for name in path:
            ino = self.rig.find(name, ino).ino
        return ino

    def folder(self, pick: int) -> tuple[Path_, dict[bytes, Node]]:
        folders = [((), self.root), *((p, n) for p, n in walk(self.root).items() if n.entries is not None)]
        path, node = folders[pick % len(folders)]
        assert node.entries is not None
        return path, node.entries

    def entry(self, pick: int, *, files: bool = False) -> tuple[Path_, Node] | None:
        found = [(p, n) for p, n in walk(self.root).items() if n.entries is None or not files]
        return found[pick % len(found)] if found else None

    def holder(self, path: Path_) -> dict[bytes, Node]:
        node = walk(self.root)[path[:-1]] if len(path) > 1 else self.root
        assert node.entries is not None
        return node.entries

    def forget(self, node: Node) -> None:
        if node not in walk(self.root).values():
            self.removed.add(node.identity)

    def fresh(self, size: int) -> bytes:
        self.step += 1
        return (b"%d " % self.step * size)[: size * 8]

    # -- programs --------------------------------------------------------------------------------

    @initialize()
    def first(self) -> None:
        self.make(0, 0, stat.S_IFREG | 0o644, 3)

    @rule(
        pick=picks,
        name=st.integers(0, 2),
        mode=st.sampled_from(
            [stat.S_IFREG | 0o600, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777, stat.S_IFIFO]
        ),
        size=st.integers(0, 12),
    )
    def make(self, pick: int, name: int, mode: int, size: int) -> None:
        path, entries = self.folder(pick)
        if NAMES[name] in entries or len(path) > 3:
            return
        folder = walk(self.root)[path] if path else self.root
        inherited = folder.mode & stat.S_ISGID if stat.S_ISDIR(mode) else 0
        node = entries[NAMES[name]] = Node(mode | inherited)
        target = b"target %d" % size if stat.S_ISLNK(mode) else None
        with self.rig.fs.state.transaction() as tx:
            inode = self.rig.fs.make(tx, self.ino(path), NAMES[name], mode, 1, 1, target=target)
            node.target = target or b""
            node.identity = inode.id
            if stat.S_ISDIR(mode):
                node.entries = {}
            if stat.S_ISREG(mode):
                self.write_and_close(node, inode.ino, size)

    def write_and_close(self, node: Node, ino: int, size: int) -> None:
        handle = self.rig.fs.open(self.rig.tx, ino, os.O_WRONLY | os.O_TRUNC)
        node.data = self.fresh(size)
        self.rig.fs.write(self.rig.tx, self.rig.fs.handle(handle), 0, node.data)
        self.rig.fs.release(self.rig.tx, handle)

    @rule(pick=picks, size=st.integers(0, 12), keep_open=st.booleans())
    def rewrite(self, pick: int, size: int, keep_open: bool) -> None:
        found = self.entry(pick, files=True)
        if found is None or not stat.S_ISREG(found[1].mode):
            return
        path, node = found
        with self.rig.fs.state.transaction() as tx:
            if keep_open and len(self.open) < 3:
                handle = self.rig.fs.open(tx, self.ino(path), os.O_RDWR)
                self.open[handle] = node
                data = self.fresh(size)
                self.rig.fs.write(tx, self.rig.fs.handle(handle), 0, data)
                node.data = data + node.data[len(data) :]
            else:
                self.write_and_close(node, self.ino(path), size)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        handle = sorted(self.open)[pick % len(self.open)]
        del self.open[handle]
        self.rig.fs.release(self.rig.tx, handle)

    @rule(pick=picks, mode=st.integers(0, 0o7777), value=st.none() | st.binary(max_size=5))
    def annotate(self, pick: int, mode: int, value: bytes | None) -> None:
        found = self.entry(pick)
        if found is None:
            return
        path, node = found
        with self.rig.fs.state.transaction() as tx:
            inode = self.rig.fs.get(tx, self.ino(path))
            self.rig.fs.attributes.change(tx, inode, mode=mode)
            node.mode = stat.S_IFMT(node.mode) | mode
            if value is not None:
                self.rig.fs.attributes.set_xattr(tx, inode, b"user.x", value, 0)
                node.xattrs[b"user.x"] = value
            elif node.xattrs:
                self.rig.fs.attributes.remove_xattr(tx, inode, b"user.x")
                node.xattrs.clear()

    @rule(pick=picks)
    def remove(self, pick: int) -> None:
        found = self.entry(pick)
        if found is None or found[1].entries:
            return
        path, node = found
        parent = self.ino(path[:-1])
        with self.rig.fs.state.transaction() as tx:
            if node.entries is None:
                self.rig.fs.unlink(tx, parent, path[-1])
            else:
                self.rig.fs.rmdir(tx, parent, path[-1])
        del self.holder(path)[path[-1]]
        self.forget(node)

    @rule(pick=picks, to=picks, name=st.integers(0, 2))
    def rename(self, pick: int, to: int, name: int) -> None:
        found = self.entry(pick)
        if found is None:
            return
        path, node = found
        new_path, entries = self.folder(to)
        target = entries.get(NAMES[name])
        if new_path[: len(path)] == path or target is node:
            return
        if target is not None and ((target.entries is None) != (node.entries is None) or target.entries):
            return
        with self.rig.fs.state.transaction() as tx:
            old, new = self.ino(path[:-1]), self.ino(new_path)
            self.rig.fs.rename(tx, old, path[-1], new, NAMES[name], 0)
        del self.holder(path)[path[-1]]
        entries[NAMES[name]] = node
        self.renamed.add(node.identity)
        if target is not None:
            self.forget(target)

    @rule(pick=picks, other=picks)
    def exchange(self, pick: int, other: int) -> None:
        one, two = self.entry(pick), self.entry(other)
        if one is None or two is None or one[1] is two[1]:
            return
        (left, first), (right, second) = one, two
        if left == right[: len(left)] or right == left[: len(right)]:
            return
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.rename(
                tx, self.ino(left[:-1]), left[-1], self.ino(right[:-1]), right[-1], RENAME_EXCHANGE
            )
        here, there = self.holder(left), self.holder(right)
        here[left[-1]], there[right[-1]] = second, first
        self.renamed |= {first.identity, second.identity}

    @rule(pick=picks, to=picks, name=st.integers(0, 2))
    def link(self, pick: int, to: int, name: int) -> None:
        found = self.entry(pick, files=True)
        path, entries = self.folder(to)
        if found is None or NAMES[name] in entries:
            return
        with self.rig.fs.state.transaction() as tx:
            self.rig.fs.link(tx, self.ino(found[0]), self.ino(path), NAMES[name])
        entries[NAMES[name]] = found[1]
        self.renamed.add(found[1].identity)

    # -- the publisher ---------------------------------------------------------------------------

    @rule(everything=st.booleans(), between=st.none() | st.lists(st.tuples(picks, picks), max_size=4))
    def publish(self, everything: bool, between: list[tuple[int, int]] | None) -> None:
        """Sign what has changed; *between* are things done by programs while files are being cut into
        chunks."""
        cut: dict[Path_, tuple[bytes, tuple[object, ...]]] = {}
        held: set[bytes] = set()
        self.removed.clear()
        remaining = list(between or [])
        for path, node in walk(self.root).items():
            cut[path] = node.identity, node.facts()
        if not everything:
            held = {node.identity for node in self.open.values()} - self.renamed
        self.renamed.clear()
        self.rig.chunker.before = self.rig.chunker.after = lambda _: self.meddle(remaining)
        self.rig.publish(everything=everything)
        self.rig.chunker.before = self.rig.chunker.after = lambda _: None
        self.reader.catch_up(self.rig.db)
        self.compare(cut, held)
        check_published(self.rig, self.reader)

    def meddle(self, remaining: list[tuple[int, int]]) -> None:
        if not remaining:
            return
        action, pick = remaining.pop()
        (self.remove, self.release_any, self.rewrite_any, self.rename_any)[action % 4](pick)

    def release_any(self, pick: int) -> None:
        if self.open:
            self.release(pick)

    def rewrite_any(self, pick: int) -> None:
        self.rewrite(pick, pick % 12, False)

    def rename_any(self, pick: int) -> None:
        self.rename(pick, pick // 3, pick % 3)

    def compare(self, cut: dict[Path_, tuple[bytes, tuple[object, ...]]], held: set[bytes]) -> None:
        """The reader sees the cut, or, while files are held back, of some nodes what it saw before: what may
        wait behind what is for `tests.write.test_cut_order`."""
        tree = self.reader.tree()
        facts = {identity: self.published(identity) for identity in tree.values()}
        for path, (identity, expected) in cut.items():
            if held or identity in self.removed:
                continue
            assert tree.get(path) == identity, f"{path} is not what it was"
            assert facts[identity] == expected
        for path, identity in tree.items():
            if cut.get(path, (b"",))[0] != identity:
                # Held back, or below something that is: then as it was published before.
                assert identity in held | self.removed or self.seen.get(identity) == facts[identity], path
            elif held and facts[identity] != self.seen.get(identity):
                assert facts[identity] == cut[path][1], f"{path} is torn"
        self.seen.update(facts)

    def published(self, identity: bytes) -> tuple[object, ...]:
        node = self.reader.nodes[identity]
        assert node.attr is not None, "a name without attributes"
        data = b""
        if node.content is not None:
            data = read_content(node.content, self.rig.plaintexts.__getitem__)
        return node.attr.mode, data, node.attr.target, node.attr.xattrs

    @rule()
    def commit(self) -> None:
        self.rig.commit()
        self.committed = copy.deepcopy(self.root)

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        if crash:
            self.rig = self.rig.crashed()
            self.root = copy.deepcopy(self.committed)
            self.reader = Reader()
            self.seen.clear()
            self.reader.catch_up(self.rig.db)
            self.seen.update({identity: self.published(identity) for identity in self.reader.tree().values()})
        else:
            self.rig = self.rig.reopen()
            self.committed = copy.deepcopy(self.root)
        self.open.clear()
        self.renamed.clear()

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_tree_is_the_models(self) -> None:
        self.checks += 1
        with self.rig.fs.state.transaction() as tx:
            if self.checks % 3 == 0:  # it writes into the database what is in memory
                check_accounts(self.rig, [])
            found: dict[Path_, bytes] = {}
            waiting: list[tuple[Path_, int]] = [((), ROOT_INO)]
            while waiting:
                path, ino = waiting.pop()
                for _, name, inode in self.rig.fs.names.list(tx, ino, 0, 100):
                    found[(*path, name)] = inode.id
                    if inode.is_directory:
                        waiting.append(((*path, name), inode.ino))
        assert found == {path: node.identity for path, node in walk(self.root).items()}


TestTree = TreeMachine.TestCase
TestTree.settings = settings(
    max_examples=settings().max_examples,
    stateful_step_count=40,
    phases=set(Phase) - {Phase.explain},
)
