"""Unmounting what may be in use."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hybrisfs.errors import HybrisError
from hybrisfs.fuse import FuseError
from hybrisfs.mount.mountpoint import Holder, unmount

PLACE = Path("/somewhere")


def busy(times: int, error: int = errno.EBUSY) -> Callable[[], None]:
    """An attempt that fails so many times."""
    left = [FuseError(error, "it failed")] * times

    def attempt() -> None:
        if left:
            raise left.pop()

    return attempt


def nobody(_: Path) -> Sequence[Holder]:
    return []


def test_who_only_passes_by_does_not_keep_it_mounted() -> None:
    naps: list[float] = []
    unmount(PLACE, busy(3), naps.append, find=nobody)
    assert len(naps) == 3
    assert 0 < sum(naps) < 1


def test_who_stays_is_named_at_once() -> None:
    naps: list[float] = []
    with pytest.raises(HybrisError, match=r"in use: vim \(process 7\) uses /somewhere/x"):
        unmount(PLACE, busy(99), naps.append, find=lambda _: [Holder(7, "vim", "/somewhere/x")])
    assert not naps


def test_it_ends_though_nobody_is_found() -> None:
    with pytest.raises(HybrisError, match="no process that can be seen"):
        unmount(PLACE, busy(999), lambda _: None, find=nobody)


def test_another_error_is_told_at_once() -> None:
    naps: list[float] = []
    with pytest.raises(HybrisError, match="it failed"):
        unmount(PLACE, busy(1, errno.EPERM), naps.append, find=nobody)
    assert not naps
