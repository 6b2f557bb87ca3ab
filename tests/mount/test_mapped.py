"""What a program writes through a mapping is the kernel's alone until that writes the pages out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SIZE, _AT, _WRITTEN = 1 << 20, 500_000, b"written through a mapping"
_WRITER = f"""
import mmap, sys
with open(sys.argv[1], "w+b") as file:
    file.truncate({_SIZE})
    mapping = mmap.mmap(file.fileno(), 0)
mapping[{_AT} : {_AT + len(_WRITTEN)}] = {_WRITTEN!r}
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mapped(root: Path) -> Iterator[Path]:
    """A hole in which a program, which goes on running, has written."""
    path = root / "mapped"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        yield path


def test_a_hole_that_is_written_through_a_mapping_is_none(mapped: Path) -> None:
    descriptor = os.open(mapped, os.O_RDONLY)
    try:
        data = os.lseek(descriptor, 0, os.SEEK_DATA)
        assert data == _AT - _AT % 4096
        assert os.lseek(descriptor, 0, os.SEEK_HOLE) == 0
        assert os.lseek(descriptor, data, os.SEEK_HOLE) == data + 4096
    finally:
        os.close(descriptor)


def test_a_program_that_leaves_out_holes_copies_it(mapped: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", mapped, tmp_path / "copy"], check=True)
    assert (tmp_path / "copy").read_bytes()[_AT:].startswith(_WRITTEN)
