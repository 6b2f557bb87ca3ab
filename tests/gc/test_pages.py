"""Lists of chunks: those of hostile members, and those that cannot be read."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from hybrisfs.registers.tree import Content, Run, content_key
from tests.gc.support import Collecting
from tests.merge.fleet import Fleet
from tests.tree.rig import SEALER


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Mallory has signed that a file is made of a list of chunks, which is none."""
    one = Fleet(2)
    honest, mallory = one.devices
    mallory.write("text", b"this is not a list of chunks")
    mallory.write("long", b"some bytes")
    mallory.sign()
    run = Run(25, SEALER.chunk_id(b"this is not a list of chunks"))
    mallory.rig.updates.sign([(content_key(mallory.at("long").id), Content(25, 1, [run]).encode())], 0, 0)
    honest.receive(mallory.log())
    yield one
    one.discard()


def test_a_list_that_is_none_does_not_stop_garbage_collection(fleet: Fleet) -> None:
    honest = fleet[0]
    honest.write("garbage", b"x" * 1000)
    honest.sign()
    honest.remove("garbage")
    honest.sign()
    found = Collecting(honest).find()
    assert len(found.empty) == 1
    with pytest.raises(OSError, match="Input/output error"):
        honest.read("long")


def test_a_list_that_cannot_be_read_stops_it(fleet: Fleet) -> None:
    """The disk fails: nobody knows what the list names."""
    honest = fleet[0]
    honest.rig.journal.fail(OSError(errno.EIO, "the disk is broken"))
    with pytest.raises(OSError, match="the disk is broken"):
        Collecting(honest).find()
