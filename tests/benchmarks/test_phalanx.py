"""Phalanx, with which ours are compared: no cloud can pass off what was not signed for this version."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from benchmarks.phalanx import SignedCodec
from benchmarks.registers import System
from hybrisfs.environment import SYSTEM
from hybrisfs.kv.cloud_objects import ObjectCodec
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.quorums.names import Names, Time
from sync import OneKey


def test_it_reads_what_was_written_last(tmp_path: Path) -> None:
    with ExitStack() as ends:
        system = System("Phalanx", tmp_path, 1, ends, mean=0.0)
        for size in (10, 50_000):
            value = os.urandom(size)
            system.write("key", value)
            assert system.read("key", size) == value


def test_another_version_and_another_value_are_refused() -> None:
    codec = SignedCodec(
        ObjectCodec(Names(bytes(32), bytes(16)), ValueSealer(bytes(32), bytes(16), OneKey(bytes(32))), SYSTEM)
    )
    draft = codec.draft("key", b"value" * 2000, range(4))
    version = draft.at(Time(1, draft.write, 0))
    data = codec.signed(version, draft.objects(0))
    assert len(data) == version.size
    assert codec.is_right(version, 2, data)
    assert not codec.is_right(version._replace(time=Time(2, draft.write, 0)), 2, data)
    assert not codec.is_right(version, 2, data[:-1] + bytes([data[-1] ^ 1]))
