"""What others see is always a state that this device was in: no change without all that came before it.

Programs keep files open for as long as they like, write, truncate, rename and remove; rounds of the publisher
come at any moment, and programs go on while one is under way.
"""

from __future__ import annotations

import os
import stat
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hybrisfs.environment import Environment, Limits
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.names import RENAME_EXCHANGE
from hybrisfs.write.cut import CutLimits, FileSnapshot
from tests.tree.invariants import check_accounts
from tests.tree.replay import Reader, read_content
from tests.tree.rig import SMALL_BLOCKS, Rig, small_chunks
from tests.tree.unlocked import unlocked

State = dict[tuple[bytes, ...], tuple[int, bytes]]
"""Of each path: mode (of files; else only the type) and content."""

NAMES: Final = [b"a", b"b", b"c", b"d"]
names = st.sampled_from(NAMES)
folders = st.integers(0, 1)
picks = st.integers(0, 7)


class Programs(RuleBasedStateMachine):
    """Programs of one device, its publisher, and another device that reads its log."""

    limit = 10_000
    """Registers that fill a cut."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        limits = Limits(small_chunks(64), SMALL_BLOCKS)
        self.rig = Rig(environment=Environment(monotonic=lambda: self.now, limits=limits))
        self.folders = [ROOT_INO, self.rig.mkdir(b"folder")]
        self.open: list[tuple[int, Inode]] = []
        self.others = Reader()
        self.states: list[State] = [{}]  # that others may see next, the oldest first
        self.written = 0
        self.remember()

    def teardown(self) -> None:
        self.rig.discard()

    # -- programs --------------------------------------------------------------------------------

    @rule(folder=folders, name=names)
    def create(self, folder: int, name: bytes) -> None:
        fs = self.rig.fs
        if fs.lookup(unlocked(fs), self.folders[folder], name) is None:
            inode, handle = fs.create(unlocked(fs), self.folders[folder], name, 0o644, 1, 1, os.O_RDWR)
            self.open.append((handle, inode))
        self.remember()

    @rule(folder=folders, name=names)
    def open_again(self, folder: int, name: bytes) -> None:
        inode = self.rig.fs.lookup(self.rig.tx, self.folders[folder], name)
        if inode is not None and inode.is_file:
            self.open.append((self.rig.fs.open(self.rig.tx, inode.ino, os.O_RDWR), inode))

    @precondition(lambda self: self.open)
    @rule(pick=picks, at=st.integers(0, 100), size=st.integers(1, 90))
    def write(self, pick: int, at: int, size: int) -> None:
        _, inode = self.open[pick % len(self.open)]
        self.written += 1
        self.rig.fs.write(self.rig.tx, inode, at, (b"%d-" % self.written * size)[:size])
        self.remember()

    @precondition(lambda self: self.open)
    @rule(pick=picks, size=st.integers(0, 120))
    def truncate(self, pick: int, size: int) -> None:
        self.rig.fs.truncate(self.rig.tx, self.open[pick % len(self.open)][1], size)
        self.remember()

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def close(self, pick: int) -> None:
        handle, _ = self.open.pop(pick % len(self.open))
        self.rig.fs.release(self.rig.tx, handle)

    @rule(folder=folders, name=names, to_folder=folders, to=names, exchange=st.booleans())
    def rename(self, folder: int, name: bytes, to_folder: int, to: bytes, exchange: bool) -> None:
        fs = self.rig.fs
        flags = RENAME_EXCHANGE if exchange else 0
        try:
            fs.rename(unlocked(fs), self.folders[folder], name, self.folders[to_folder], to, flags)
        except OSError:
            return
        self.remember()

    @rule(folder=folders, name=names)
    def unlink(self, folder: int, name: bytes) -> None:
        try:
            self.rig.fs.unlink(self.rig.tx, self.folders[folder], name)
        except OSError:
            return
        self.remember()

    @rule(folder=folders, name=names, to=names)
    def link(self, folder: int, name: bytes, to: bytes) -> None:
        inode = self.rig.fs.lookup(self.rig.tx, self.folders[folder], name)
        if inode is not None and self.rig.fs.lookup(self.rig.tx, ROOT_INO, to) is None:
            self.rig.fs.link(self.rig.tx, inode.ino, ROOT_INO, to)
            self.remember()

    @rule(folder=folders, name=names, mode=st.sampled_from([0o600, 0o640]))
    def chmod(self, folder: int, name: bytes, mode: int) -> None:
        inode = self.rig.fs.lookup(self.rig.tx, self.folders[folder], name)
        if inode is not None:
            self.rig.fs.attributes.change(self.rig.tx, inode, mode=mode)
            self.remember()

    # -- the daemon ------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(everything=st.booleans())
    def publish(self, everything: bool) -> None:
        self._publish(everything)

    @rule(data=st.data())
    def publish_meanwhile(self, data: st.DataObject) -> None:
        """Programs go on while the files of a cut are cut into chunks."""

        def go_on(snapshot: FileSnapshot) -> None:
            for _ in range(data.draw(st.integers(0, 2))):
                folder, name, to = data.draw(folders), data.draw(names), data.draw(names)
                match data.draw(st.integers(0, 4)):
                    case 0:
                        self.unlink(folder, name)
                    case 1:
                        self.rename(folder, name, 0, to, False)
                    case 2:
                        self.create(folder, name)
                    case 3 if self.open:
                        self.write(data.draw(picks), data.draw(st.integers(0, 50)), 20)
                    case 4 if self.open:
                        self.truncate(data.draw(picks), data.draw(st.integers(0, 50)))

        self.rig.chunker.before = go_on
        self._publish(False)
        self.rig.chunker.before = lambda _: None

    @rule()
    def commit(self) -> None:
        self.rig.commit()

    @rule()
    def left_alone(self) -> None:
        """Whatever is open: some time after the last change, others see it."""
        for _ in range(3):
            self.now += CutLimits().hold_seconds
            while self._publish(False):
                pass
        assert self._seen() == self._state(), "a change is left out for ever"
        check_accounts(self.rig, [])

    def _publish(self, everything: bool) -> bool:
        self.rig.publisher.limits = CutLimits(most_registers=self.limit, utmost=1000)
        signed = self.rig.publish(everything=everything)
        seen = self._seen()
        assert seen in self.states, f"never was so: {seen}"
        del self.states[: self.states.index(seen)]
        return signed

    # -- states ----------------------------------------------------------------------------------

    def remember(self) -> None:
        self.states.append(self._state())

    def _state(self) -> State:
        found: State = {}
        for path, number in (((), ROOT_INO), ((b"folder",), self.folders[1])):
            for _, name, inode in self.rig.fs.names.list(self.rig.tx, number, 0, 100):
                file = inode.is_file
                found[(*path, name)] = (
                    (inode.mode, self.rig.read(inode)) if file else (stat.S_IFMT(inode.mode), b"")
                )
        return found

    def _seen(self) -> State:
        self.others.catch_up(self.rig.db)
        found: State = {}
        for path, identity in self.others.tree().items():
            node = self.others.nodes[identity]
            assert node.attr is not None, f"{path} has come without attributes"
            if not stat.S_ISREG(node.attr.mode):
                found[path] = stat.S_IFMT(node.attr.mode), b""
                continue
            content = node.content
            read = b"" if content is None else read_content(content, self.rig.plaintexts.__getitem__)
            found[path] = node.attr.mode, read
        return found


class ManyChanges(Programs):
    """A cut is full after a few registers."""

    limit = 3


@pytest.mark.parametrize("machine", [Programs, ManyChanges])
def test_what_others_see_is_a_state_that_was(machine: type[Programs]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=300, stateful_step_count=40, deadline=None)
    )


def test_changes_that_have_become_void_hold_up_none_of_many_others() -> None:
    """A file was made and removed; then more was changed than is looked at for one cut."""
    programs = ManyChanges()
    try:
        programs.create(folder=1, name=b"a")
        programs.unlink(folder=1, name=b"a")
        programs.left_alone()
        for folder, name in ((0, b"b"), (0, b"a"), (1, b"a")):
            programs.create(folder=folder, name=name)
        programs.chmod(folder=0, name=b"b", mode=0o600)
        programs.left_alone()
    finally:
        programs.teardown()
