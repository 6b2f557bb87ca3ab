"""The same is done in two folders, one of HybrisFS, one of a local disk: nobody can tell them apart.

Two processes, root and an ordinary user, make random system calls, many through files that they keep open.
Each call must come to the same in both folders: result, errno, and then everything that can be seen: names,
contents, attributes, link counts. Meanwhile the daemon is restarted and killed and the cache dropped.

HYBRISFS_TEST_SEED chooses the random choices, HYBRISFS_TWINS_EXAMPLES how many lives of the two are lived.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
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
from tests.system.twin_player import Player

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_SEED: Final = int(os.environ.get("HYBRISFS_TEST_SEED", "1"))
_EXAMPLES: Final = int(os.environ.get("HYBRISFS_TWINS_EXAMPLES", "12"))
_STEPS: Final = 60
_NOBODY: Final = pwd.getpwnam("nobody").pw_uid
_MEMORY: Final = Path("/dev/shm")
_RESTARTS: Final = 1  # of each kind in one life: they take a second each

_TOP: Final = ("a", "b", "c", "d", "é ")
_PATHS: Final = (
    *_TOP,
    *(f"{one}/{two}" for one in ("a", "d") for two in ("a", "b", "d")),
    "d/d/a",
    "d/",
    "a/..",
)
_HARD: Final = ("x" * 255, "x" * 256, "nothing/a", ".")

paths = st.one_of(st.sampled_from(_PATHS), st.sampled_from(_PATHS), st.sampled_from(_HARD))
targets = st.sampled_from(("a", "b", "d", "d/a", "../a", "../d", "nowhere", "."))
players = st.sampled_from((0, 0, 1))
slots = st.integers(0, 3)
modes = st.sampled_from((0o644, 0o600, 0o755, 0o777, 0o700, 0o000, 0o1777, 0o2775, 0o4755, 0o6777, 0o2644))
owners = st.sampled_from((0, _NOBODY, 1234, -1))
offsets = st.sampled_from((0, 1, 100, 4095, 4096, 10_000, 70_000))
sizes = st.sampled_from((0, 1, 7, 4096, 5_000, 66_000))
times = st.sampled_from((0, 1, 999_999_999, 1_000_000_001, 10**15 + 5))
fillings = st.tuples(st.integers(1, 255), sizes).map(lambda drawn: bytes([drawn[0]]) * drawn[1])
accesses = st.sampled_from((os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR))
options = st.sampled_from(
    (
        0, os.O_CREAT, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_APPEND,
        os.O_CREAT | os.O_APPEND, os.O_NOFOLLOW, os.O_DIRECTORY,
    )
)  # fmt: skip
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of FALLOC_FL_*, what tmpfs can do, too
names = st.sampled_from(("user.a", "user.b", "trusted.a", "system.a", "nonsense"))


def _acl(*entries: tuple[int, int, int]) -> bytes:
    """An access control list as xattrs carry it: tag, permissions, id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


_ALL: Final = 0xFFFFFFFF  # the id of entries that name nobody
acls = st.sampled_from(
    (
        _acl((1, 6, _ALL), (4, 4, _ALL), (32, 0, _ALL)),
        _acl((1, 7, _ALL), (2, 7, _NOBODY), (4, 5, _ALL), (16, 7, _ALL), (32, 5, _ALL)),
        _acl((1, 7, _ALL), (2, 0, _NOBODY), (4, 7, _ALL), (8, 5, 1234), (16, 5, _ALL), (32, 7, _ALL)),
        _acl((1, 0, _ALL), (4, 6, _ALL), (8, 7, _NOBODY), (16, 3, _ALL), (32, 0, _ALL)),
        _acl((1, 7, _ALL), (2, 7, _NOBODY), (4, 5, _ALL), (32, 5, _ALL)),  # lacks a mask
        b"",
    )
)
acl_names = st.sampled_from(("system.posix_acl_access", "system.posix_acl_default"))


class _Stage(NamedTuple):
    """What the lives have in common."""

    device: Device
    players: tuple[Player, Player]
    roots: tuple[Path, Path]
    numbers: Iterator[int]


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

    @rule(who=players, slot=slots, path=st.sampled_from(_TOP), data=fillings)
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
        self.same(who, "chown", path, uid, gid)

    @rule(who=players, path=paths, accessed=times, modified=times, follow=st.booleans())
    def utime(self, who: int, path: str, accessed: int, modified: int, follow: bool) -> None:
        self.same(who, "utime", path, accessed, modified, follow)

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
        self.same(who, "getxattr", path, name)
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
        os.setxattr(folder, "system.posix_acl_access", _acl((1, 7, _ALL), (4, 5, _ALL), (32, 5, _ALL)))
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
        for user, umask in ((0, 0o022), (_NOBODY, 0o007)):
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
