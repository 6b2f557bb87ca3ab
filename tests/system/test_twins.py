"""The same is done in two folders, one of HybrisFS, one of a local disk: nobody can tell them apart.

Two processes, root and an ordinary user, make random system calls, many through files that they keep open.
Each call must come to the same in both folders: result, errno, and then everything that can be seen: names,
contents, attributes, link counts. Meanwhile the daemon is restarted and killed and the cache dropped.

HYBRISFS_TEST_SEED chooses the random choices, HYBRISFS_TWINS_EXAMPLES how many lives of the two are lived.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, assume, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.system.device import Device
from tests.system.everybody import device_for_all, mount_for_all
from tests.system.twin_choices import (
    NOBODY,
    NOW,
    OMIT,
    PLAIN_ACL,
    accesses,
    acl_names,
    acls,
    fillings,
    modes,
    names,
    offsets,
    options,
    owners,
    paths,
    players,
    sizes,
    slots,
    targets,
    times,
    top_paths,
)
from tests.system.twin_player import Player

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_SEED: Final = int(os.environ.get("HYBRISFS_TEST_SEED", "1"))
_EXAMPLES: Final = int(os.environ.get("HYBRISFS_TWINS_EXAMPLES", "12"))
_STEPS: Final = 60
_MEMORY: Final = Path("/dev/shm")
_RESTARTS: Final = 1  # of each kind in one life: they take a second each
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of FALLOC_FL_*, what tmpfs can do, too


class _Stage(NamedTuple):
    """What the lives have in common."""

    device: Device
    players: tuple[Player, Player]
    roots: tuple[Path, Path]
    numbers: Iterator[int]


def _lacking(one: dict[str, object], other: dict[str, object]) -> dict[str, object]:
    """What *other* has not, or in another way."""
    return {name: seen for name, seen in one.items() if name not in other or other[name] != seen}


class Twins(RuleBasedStateMachine):
    stage: ClassVar[_Stage]

    def __init__(self) -> None:
        super().__init__()
        stage = self.stage
        self.name = str(next(stage.numbers))
        self.held: tuple[list[int], list[int]] = ([], [])  # slots with open files, of each player
        self.restarts = {"remount": _RESTARTS, "kill": _RESTARTS, "drop": _RESTARTS}
        for root in stage.roots:
            (root / self.name).mkdir()
            (root / self.name).chmod(0o777)
        for player in stage.players:
            player.call("enter", self.name)

    def opened(self, who: int, pick: int) -> int:
        """One of the slots that hold an open file, while there are any."""
        held = self.held[who]
        return held[pick % len(held)] if held else pick

    def same(self, who: int, call: str, *arguments: object) -> object:
        ours, theirs = self.stage.players[who].call(call, *arguments)
        if isinstance(ours, dict) and isinstance(theirs, dict):  # names: tell those that differ
            ours, theirs = _lacking(ours, theirs), _lacking(theirs, ours)
        assert ours == theirs, f"{call}{arguments} by {('root', 'nobody')[who]}: {ours!r} is not {theirs!r}"
        return ours

    # -- open files ----------------------------------------------------------------------------------------

    @rule(who=players, slot=slots, path=paths, access=accesses, option=options, mode=modes)
    def open(self, who: int, slot: int, path: str, access: int, option: int, mode: int) -> None:
        self.open_in(who, slot, path, access | option, mode)

    def open_in(self, who: int, slot: int, path: str, flags: int, mode: int) -> None:
        if slot in self.held[who]:
            self.held[who].remove(slot)
        if isinstance(self.same(who, "open", slot, path, flags, mode), tuple):
            self.held[who].append(slot)

    @rule(who=players, slot=slots, path=top_paths, data=fillings)
    def make(self, who: int, slot: int, path: str, data: bytes) -> None:
        self.open_in(who, slot, path, os.O_RDWR | os.O_CREAT, 0o666)
        self.same(who, "write", slot, data)

    @rule(who=players, slot=slots)
    def close(self, who: int, slot: int) -> None:
        self.same(who, "close", slot)
        if slot in self.held[who]:
            self.held[who].remove(slot)

    @rule(who=players, slot=slots, size=sizes)
    def read(self, who: int, slot: int, size: int) -> None:
        self.same(who, "read", self.opened(who, slot), size)

    @rule(who=players, slot=slots, size=sizes, offset=offsets)
    def pread(self, who: int, slot: int, size: int, offset: int) -> None:
        self.same(who, "pread", self.opened(who, slot), size, offset)

    @rule(who=players, slot=slots, data=fillings)
    def write(self, who: int, slot: int, data: bytes) -> None:
        self.same(who, "write", self.opened(who, slot), data)

    @rule(who=players, slot=slots, data=fillings, offset=offsets)
    def pwrite(self, who: int, slot: int, data: bytes, offset: int) -> None:
        self.same(who, "pwrite", self.opened(who, slot), data, offset)

    @rule(
        who=players,
        slot=slots,
        offset=offsets,
        whence=st.sampled_from((os.SEEK_SET, os.SEEK_CUR, os.SEEK_END)),
    )
    def seek(self, who: int, slot: int, offset: int, whence: int) -> None:
        self.same(who, "seek", self.opened(who, slot), offset, whence)

    @rule(who=players, slot=slots, size=offsets)
    def ftruncate(self, who: int, slot: int, size: int) -> None:
        self.same(who, "ftruncate", self.opened(who, slot), size)

    @rule(
        who=players,
        slot=slots,
        mode=st.sampled_from((0, _KEEP_SIZE, _KEEP_SIZE | _PUNCH_HOLE, _PUNCH_HOLE)),
        offset=offsets,
        size=sizes,
    )
    def fallocate(self, who: int, slot: int, mode: int, offset: int, size: int) -> None:
        self.same(who, "fallocate", self.opened(who, slot), mode, offset, size)

    @rule(who=players, slot=slots, offset=offsets, data=fillings)
    def map(self, who: int, slot: int, offset: int, data: bytes) -> None:
        self.same(who, "map", self.opened(who, slot), offset, data)

    @rule(who=players, slot=slots)
    def attach(self, who: int, slot: int) -> None:
        """Map a file, to stay mapped whatever becomes of it and of the descriptor."""
        self.same(who, "attach", self.opened(who, slot))

    @rule(who=players, slot=slots, offset=offsets, data=fillings)
    def poke(self, who: int, slot: int, offset: int, data: bytes) -> None:
        self.same(who, "poke", slot, offset, data)

    @rule(who=players, slot=slots)
    def peek(self, who: int, slot: int) -> None:
        self.same(who, "peek", slot)

    @rule(who=players, source=slots, sink=slots, size=sizes, offset=offsets, to=offsets)
    def copy(self, who: int, source: int, sink: int, size: int, offset: int, to: int) -> None:
        self.same(who, "copy", self.opened(who, source), self.opened(who, sink), size, offset, to)

    @rule(who=players, slot=slots, data_only=st.booleans())
    def fsync(self, who: int, slot: int, data_only: bool) -> None:
        self.same(who, "fsync", self.opened(who, slot), data_only)

    @rule(who=players, slot=slots)
    def fstat(self, who: int, slot: int) -> None:
        self.same(who, "fstat", self.opened(who, slot))

    @rule(who=players, slot=slots, mode=modes)
    def fchmod(self, who: int, slot: int, mode: int) -> None:
        self.same(who, "fchmod", self.opened(who, slot), mode)

    @rule(who=players, slot=slots, uid=owners, gid=owners)
    def fchown(self, who: int, slot: int, uid: int, gid: int) -> None:
        assume((uid, gid) != (-1, -1))  # root keeps set-id bits here: docs/posix.md
        self.same(who, "fchown", self.opened(who, slot), uid, gid)

    @rule(who=players, slot=slots, name=names, value=st.binary(max_size=9))
    def fsetxattr(self, who: int, slot: int, name: str, value: bytes) -> None:
        self.same(who, "fsetxattr", self.opened(who, slot), name, value)

    @rule(who=players, slot=slots, name=paths)
    def within(self, who: int, slot: int, name: str) -> None:
        """Use an open directory, which may have no name any more."""
        self.same(who, "within", self.opened(who, slot), name)

    @rule(who=players, slot=slots, kind=st.sampled_from((fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN)))
    def flock(self, who: int, slot: int, kind: int) -> None:
        self.same(who, "flock", self.opened(who, slot), kind)

    @rule(
        who=players,
        slot=slots,
        command=st.sampled_from((fcntl.F_SETLK, fcntl.F_OFD_SETLK)),
        kind=st.sampled_from((fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK)),
        start=offsets,
        length=sizes,
    )
    def lock(self, who: int, slot: int, command: int, kind: int, start: int, length: int) -> None:
        self.same(who, "lock", self.opened(who, slot), command, kind, start, length)

    # -- names ---------------------------------------------------------------------------------------------

    @rule(who=players, path=paths, mode=modes)
    def mkdir(self, who: int, path: str, mode: int) -> None:
        self.same(who, "mkdir", path, mode)

    @rule(who=players, path=paths)
    def rmdir(self, who: int, path: str) -> None:
        self.same(who, "rmdir", path)

    @rule(who=players, path=paths)
    def unlink(self, who: int, path: str) -> None:
        self.same(who, "unlink", path)

    @rule(who=players, old=paths, new=paths, flags=st.sampled_from((0, 0, 0, 1, 2, 3, 4)))
    def rename(self, who: int, old: str, new: str, flags: int) -> None:
        self.same(who, "rename", old, new, flags & 3)

    @rule(who=players, old=paths, new=paths, follow=st.booleans())
    def link(self, who: int, old: str, new: str, follow: bool) -> None:
        self.same(who, "link", old, new, follow)

    @rule(who=players, text=targets, path=paths)
    def symlink(self, who: int, text: str, path: str) -> None:
        self.same(who, "symlink", text, path)

    @rule(who=players, path=paths)
    def readlink(self, who: int, path: str) -> None:
        self.same(who, "readlink", path)

    @rule(who=players, path=paths, mode=modes)
    def mkfifo(self, who: int, path: str, mode: int) -> None:
        self.same(who, "mkfifo", path, mode)

    @rule(who=players, path=paths, mode=modes, kind=st.sampled_from((stat.S_IFREG, stat.S_IFSOCK)))
    def mknod(self, who: int, path: str, mode: int, kind: int) -> None:
        self.same(who, "mknod", path, kind | mode)

    # -- attributes ----------------------------------------------------------------------------------------

    @rule(who=players, path=paths, size=offsets)
    def truncate(self, who: int, path: str, size: int) -> None:
        self.same(who, "truncate", path, size)

    @rule(who=players, path=paths, mode=modes)
    def chmod(self, who: int, path: str, mode: int) -> None:
        self.same(who, "chmod", path, mode)

    @rule(who=players, path=paths, uid=owners, gid=owners)
    def chown(self, who: int, path: str, uid: int, gid: int) -> None:
        assume((uid, gid) != (-1, -1))  # root keeps set-id bits here: docs/posix.md
        self.same(who, "chown", path, uid, gid)

    @rule(who=players, path=paths, accessed=times, modified=times, follow=st.booleans())
    def utime(self, who: int, path: str, accessed: int, modified: int, follow: bool) -> None:
        self.same(who, "utime", path, accessed, modified, follow)

    @rule(who=players, path=paths, modified=st.sampled_from((NOW, OMIT, 5)), follow=st.booleans())
    def touch(self, who: int, path: str, modified: int, follow: bool) -> None:
        self.same(who, "touch", path, modified, follow)

    @rule(
        who=players,
        path=paths,
        name=names,
        value=st.binary(max_size=9),
        flags=st.sampled_from((0, 0, os.XATTR_CREATE, os.XATTR_REPLACE)),
    )
    def setxattr(self, who: int, path: str, name: str, value: bytes, flags: int) -> None:
        self.same(who, "setxattr", path, name, value, flags)

    @rule(who=players, path=paths, name=acl_names, value=acls)
    def set_acl(self, who: int, path: str, name: str, value: bytes) -> None:
        self.same(who, "setxattr", path, name, value, 0)

    @rule(who=players, path=paths, name=acl_names)
    def remove_acl(self, who: int, path: str, name: str) -> None:
        if isinstance(self.same(who, "getxattr", path, name), bytes):  # else tmpfs calls it a change
            self.same(who, "removexattr", path, name)

    @rule(who=players, path=paths, name=names)
    def removexattr(self, who: int, path: str, name: str) -> None:
        self.same(who, "getxattr", path, name)
        self.same(who, "removexattr", path, name)

    @rule(who=players, path=paths, mode=st.integers(0, 7), follow=st.booleans())
    def look(self, who: int, path: str, mode: int, follow: bool) -> None:
        self.same(who, "access", path, mode)
        self.same(who, "stat", path, follow)
        self.same(who, "list", path)
        self.same(who, "listxattr", path)

    # -- the daemon ----------------------------------------------------------------------------------------

    def once(self, kind: str) -> None:
        self.restarts[kind] -= 1

    @precondition(lambda self: self.restarts["remount"])
    @rule()
    def remount(self) -> None:
        self.once("remount")
        self.leave()
        self.stage.device.umount()
        mount_for_all(self.stage.device)

    @precondition(lambda self: self.restarts["kill"])
    @rule()
    def kill(self) -> None:
        self.once("kill")
        self.leave()
        self.same(0, "settle")
        self.stage.device.kill()
        mount_for_all(self.stage.device)

    @precondition(lambda self: self.restarts["drop"])
    @rule()
    def drop(self) -> None:
        """Open files stay open, and are fetched again."""
        self.once("drop")
        self.stage.device.sync()
        self.stage.device.cache_drop()

    def leave(self) -> None:
        """Nothing is open that a dead mount would keep from being used."""
        for player, held in zip(self.stage.players, self.held, strict=True):
            player.call("leave")
            held.clear()

    @invariant()
    def nobody_can_tell_them_apart(self) -> None:
        self.same(0, "all")

    def teardown(self) -> None:
        self.leave()


def _plain_folder(stack: ExitStack) -> Path:
    """One in memory, which knows everything that a disk does."""
    folder = Path(tempfile.mkdtemp(prefix="hybrisfs-twin-", dir=_MEMORY if _MEMORY.is_dir() else None))
    stack.callback(shutil.rmtree, folder)
    folder.chmod(0o755)
    try:
        os.setxattr(folder, "user.known", b"")
        os.setxattr(folder, "system.posix_acl_access", PLAIN_ACL)
    except OSError:
        pytest.skip(
            f"the filesystem of {folder} lacks extended attributes or access control lists to compare with"
        )
    return folder


@pytest.fixture
def stage() -> Iterator[_Stage]:
    with ExitStack() as stack:
        device = stack.enter_context(device_for_all())
        roots = (device.mountpoint, _plain_folder(stack))
        pair = []
        for user, umask in ((0, 0o022), (NOBODY, 0o007)):
            player = Player(roots, user, umask)
            stack.callback(player.close)
            pair.append(player)
        yield _Stage(device, (pair[0], pair[1]), roots, count())


@pytest.mark.timeout(1200)
def test_nobody_can_tell_hybrisfs_from_a_local_disk(stage: _Stage) -> None:
    print(f"HYBRISFS_TEST_SEED={_SEED}")
    Twins.stage = stage
    run_state_machine_as_test(
        seed(_SEED)(Twins),
        settings=settings(
            max_examples=_EXAMPLES,
            stateful_step_count=_STEPS,
            deadline=None,
            database=None,
            phases=(Phase.generate,),  # a life takes seconds: shrinking one would take an hour
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert stage.device.fsck().returncode == 0
