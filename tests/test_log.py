"""Which values registers hold after updates of other devices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hybrisfs.log import Registers, Written
from hybrisfs.registers.tree import attr_key, content_key, place_key
from hybrisfs.registers.values import Stamp, Value
from sync import VersionVector
from tests.tree.rig import Rig

WRITER = b"w" * 16
LOW, MIDDLE, HIGH = bytes(16), b"m" * 16, b"\xff" * 16


@pytest.fixture
def registers() -> Iterator[Registers]:
    rig = Rig()
    yield Registers(rig.tx, rig.tx.chunks.condemned, rig.tx.versions, rig.tx.hearing)
    rig.discard()


def write(registers: Registers, clock: int, *keys: bytes) -> None:
    """An update that depends on the one before."""
    vector = VersionVector({WRITER: clock - 1} if clock > 1 else {})
    writes = [(key, b"%d" % clock) for key in keys]
    registers.write([Written(Stamp(clock, WRITER), vector, writes)])


@pytest.mark.parametrize("node", [LOW, MIDDLE, HIGH])
@pytest.mark.parametrize("key_of", [lambda node: place_key(node, 0), attr_key, content_key])
def test_a_later_update_supersedes_wherever_the_key_stands(
    registers: Registers, node: bytes, key_of: object
) -> None:
    assert callable(key_of)
    keys = [key_of(one) for one in (LOW, MIDDLE, HIGH)]
    write(registers, 1, *keys)
    write(registers, 2, key_of(node))
    for key in keys:
        clock = 2 if key == key_of(node) else 1
        assert registers.values(key) == [Value(Stamp(clock, WRITER), b"%d" % clock)]


@pytest.mark.parametrize("kind", [b"\0", b"m", b"s", b"\xff"])
def test_registers_of_other_kinds_are_superseded_too(registers: Registers, kind: bytes) -> None:
    write(registers, 1, kind + b"key")
    write(registers, 2, kind + b"key", kind + b"other")
    assert registers.values(kind + b"key") == [Value(Stamp(2, WRITER), b"2")]
