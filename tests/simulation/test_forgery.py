"""Whatever a bad member forges can be signed and read, and each kind of forgery comes to something."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from hybrisfs.merge.authority import described, fault
from sync import DeviceKey, Write, decode_signed
from sync.update import decode_writes, encode_writes
from tests.merge.fleet import Fleet, member_of
from tests.simulation.forgery import KINDS, Forger, Heard

_KEY = DeviceKey.from_seed(b"\x66" * 32)


@pytest.fixture(scope="module")
def heard() -> Iterator[Heard]:
    fleet = Fleet(2)
    fleet[0].mkdir("folder")
    fleet[0].write("folder/file", b"content")
    fleet[1].write("other", b"content of another")
    fleet.meet()
    fleet[1].remove("other")
    fleet.meet()
    yield Heard(write for data in fleet[0].log() for write in decode_signed(data).writes)
    fleet.discard()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_can_be_signed(heard: Heard, kind: str) -> None:
    forger = Forger(Random(kind), _KEY, [member_of(0), member_of(1)], heard)
    forged: list[list[Write]] = [forger.forge(kind) for _ in range(20)]
    assert any(forged), "nothing ever comes of it"
    for writes in forged:
        assert tuple(decode_writes(encode_writes(writes), len(writes))) == tuple(writes)
        for key, value in writes:
            assert described(key)
            fault(_KEY.device_id, key, value)
