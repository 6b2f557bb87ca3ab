"""What the twins are asked to do: paths, users, sizes and the like, from which the test draws at random."""

from __future__ import annotations

import os
import pwd
import struct
from typing import Final

from hypothesis import strategies as st

__all__ = [
    "NOBODY",
    "NOW",
    "OMIT",
    "PLAIN_ACL",
    "accesses",
    "acl_names",
    "acls",
    "fillings",
    "modes",
    "names",
    "offsets",
    "options",
    "owners",
    "paths",
    "players",
    "sizes",
    "slots",
    "targets",
    "times",
    "top_paths",
]

NOBODY: Final = pwd.getpwnam("nobody").pw_uid
NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2  # UTIME_NOW and UTIME_OMIT of utimensat(2)

_TOP: Final = ("a", "b", "c", "d", "é ")
_PATHS: Final = (
    *_TOP,
    *(f"{one}/{two}" for one in ("a", "d") for two in ("a", "b", "d")),
    "d/d/a",
    "d/",
    "a/..",
)
_HARD: Final = ("x" * 255, "x" * 256, "nothing/a", ".")

top_paths = st.sampled_from(_TOP)
paths = st.one_of(st.sampled_from(_PATHS), st.sampled_from(_PATHS), st.sampled_from(_HARD))
targets = st.sampled_from(("a", "b", "d", "d/a", "../a", "../d", "nowhere", "."))
players = st.sampled_from((0, 0, 1))
slots = st.integers(0, 3)
modes = st.sampled_from((0o644, 0o600, 0o755, 0o777, 0o700, 0o000, 0o1777, 0o2775, 0o4755, 0o6777, 0o2644))
owners = st.sampled_from((0, NOBODY, 1234, -1))
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
names = st.sampled_from(("user.a", "user.b", "trusted.a", "system.a", "nonsense"))


_ALL: Final = 0xFFFFFFFF  # the id of entries that name nobody


def _acl(*entries: tuple[int, int, int]) -> bytes:
    """An access control list as xattrs carry it: tag, permissions, id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


PLAIN_ACL: Final = _acl((1, 7, _ALL), (4, 5, _ALL), (32, 5, _ALL))
acls = st.sampled_from(
    (
        PLAIN_ACL,
        _acl((1, 6, _ALL), (4, 4, _ALL), (32, 0, _ALL)),
        _acl((1, 7, _ALL), (2, 7, NOBODY), (4, 5, _ALL), (16, 7, _ALL), (32, 5, _ALL)),
        _acl((1, 7, _ALL), (2, 0, NOBODY), (4, 7, _ALL), (8, 5, 1234), (16, 5, _ALL), (32, 7, _ALL)),
        _acl((1, 0, _ALL), (4, 6, _ALL), (8, 7, NOBODY), (16, 3, _ALL), (32, 0, _ALL)),
        _acl((1, 7, _ALL), (2, 7, NOBODY), (4, 5, _ALL), (32, 5, _ALL)),  # lacks a mask
        b"",
    )
)
acl_names = st.sampled_from(("system.posix_acl_access", "system.posix_acl_default"))
