"""What keys in the log must have in the end, whatever machines, links and clouds have done.

Each write supersedes what its machine saw of the key; of all others nothing may be missing (Depot 3.1: a
reader gets the values of all writes that no other one has superseded).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hybrisfs.kinds import ENTRY
from hybrisfs.kv.containers import Key
from hybrisfs.kv.log_store import LogStore
from hybrisfs.registers.entries import Entry, entry_key, key_of, space_of
from hybrisfs.registers.values import Value
from hybrisfs.write.relayer import Shipping
from tests.tree.rig import Rig

__all__ = ["KeyModel"]

_BOX: Final = "box"


class _Written(NamedTuple):
    """A write, by its key and its tag."""

    key: str
    sn: int
    write: int


class KeyModel:
    """Writes as programs make them, and remembers what they supersede."""

    def __init__(self, devices: int) -> None:
        self._superseded_by: dict[_Written, set[_Written]] = {}
        self._since: list[set[_Written]] = [set() for _ in range(devices)]  # the backup
        self._perhaps_lost: set[_Written] = set()

    def write(self, number: int, rig: Rig, values: Mapping[str, bytes | None]) -> None:
        """Put values, or delete keys whose value is None, in one transaction. What it has written is
        durable."""
        shipping = Shipping(rig.fs, rig.signals)
        store = LogStore(rig.fs, rig.sharing.signer, rig.committer, rig.signals, shipping)
        if not store.has_container(_BOX):
            store.create_container(_BOX)
        registers = {key: entry_key(space_of(_BOX), key.encode()) for key in values}
        seen = {key: _present({one: rig.registers.values(one)}) for key, one in registers.items()}
        written = store.tput({Key(_BOX, key): value for key, value in values.items()})
        for (key, before), stamp in zip(seen.items(), written, strict=True):
            new = _Written(key, *stamp)
            assert new not in self._superseded_by, "two writes have one tag"
            self._superseded_by[new] = set()
            self._since[number].add(new)
            for one in before:
                self._superseded_by.setdefault(one, set()).add(new)

    def backed_up(self, number: int) -> None:
        """A backup of this device holds all that it has written so far."""
        self._since[number].clear()

    def set_back(self, number: int) -> None:
        """A device goes on from its backup: others may have what it has written since, or not."""
        self._perhaps_lost |= self._since[number]
        self._since[number].clear()

    def check(self, registers: Mapping[bytes, Sequence[Value]]) -> None:
        """Check the registers of a device that has all updates."""
        present = _present(registers)
        assert present <= self._superseded_by.keys(), "a value that nobody has written"
        for one, later in self._superseded_by.items():
            if not later and one not in self._perhaps_lost:
                assert one in present, f"nobody has overwritten {one}"
            if later - self._perhaps_lost:
                assert one not in present, f"{one} was overwritten by {later}"


def _present(registers: Mapping[bytes, Iterable[Value]]) -> set[_Written]:
    found: set[_Written] = set()
    for register, values in registers.items():
        if register[0] == ENTRY:
            for one in values:
                entry = Entry.decode(one.value or b"")
                found.add(_Written(str(key_of(register)), entry.sn, entry.write))
    return found
