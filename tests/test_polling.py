"""Waiting for descriptors, however many there are."""

from __future__ import annotations

import fcntl
import os
import socket

import pytest

from hybrisfs.polling import readable


def test_descriptors_beyond_those_of_select() -> None:
    ours, theirs = os.pipe()
    high = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1500)
    try:
        assert readable([ours, high], 0.0) == []
        os.write(theirs, b"x")
        assert readable([ours, high]) == [ours, high]
    finally:
        for one in (ours, theirs, high):
            os.close(one)


def test_what_has_ended_can_be_read() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        assert readable([ours], 0.001) == []
        theirs.close()
        assert readable([ours]) == [ours]


def test_what_is_closed_is_an_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    os.close(theirs)
    with pytest.raises(OSError, match="Bad file descriptor"):
        readable([ours])
