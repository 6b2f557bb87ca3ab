"""What devices do with the keys of containers on the clouds, and what that tells of the history."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_keys import CloudKeys, _check, timestamp_of
from hybrisfs.kv.cloud_objects import Metadata
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.containers import Key
from hybrisfs.kv.errors import ConditionNotMetError, ContainerExistsError, NoSuchKeyError
from hybrisfs.kv.mend import CloudMender
from hybrisfs.kv.record import ABSENT, PRESENT, Condition, Timestamp
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.reading import read as read_register
from hybrisfs.quorums.register import Draft, Found, Part
from hybrisfs.quorums.rounds import Protocol
from hybrisfs.quorums.snapshot import Snapshot
from hybrisfs.quorums.transaction import write_if
from tests.kv.linearizability import Effect, deleted, listed, read, replaced, unless, wrote
from tests.simulation.key_clouds import Asker, KeyClouds, UnderWay
from tests.tree.rig import Rig

__all__ = ["BUSY", "DAMAGED", "KEYS", "REGISTRY", "Alone", "Call", "Calls", "Daemon"]

_LARGE: Final = 0.15  # of all values are in shares
KEYS: Final = "ab"
REGISTRY: Final = ""  # the history of the list of containers
BUSY: Final = ("the keys cannot be listed now", "the keys of a container cannot be listed")
DAMAGED: Final = "damaged"  # the key to which bad members write


class Seen(NamedTuple):
    """The value of a key that a device has last seen or written, and its tag; None: it had none."""

    value: bytes | None
    tag: Timestamp | None = None


@dataclass
class Daemon:
    """One life of a device's daemon."""

    number: int
    rig: Rig
    asker: Asker
    store: CloudStore
    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)


@dataclass
class Call:
    """Something that a device does. `perhaps` is what it has done if nobody can tell."""

    daemon: Daemon
    kind: str
    container: str
    key: str
    called: int
    perhaps: Effect | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.container, self.key


@dataclass
class Alone:
    """A protocol that is under way by itself; `finish` says what its result means."""

    call: Call
    protocol: UnderWay[Any]
    draft: Draft | None
    finish: Callable[[Any], Effect]
    rests_until: int = 0
    """The moment until which nothing of it moves."""


class Calls:
    """What devices do with their stores."""

    def __init__(self, clouds: KeyClouds, place: CloudPlace, chance: Random) -> None:
        self._clouds = clouds
        self._place = place
        self._chance = chance
        self._values = 0

    # -- whole calls -----------------------------------------------------------------------------

    def carry_out(self, call: Call) -> Effect | None:
        """What it has done, None for nothing that anybody sees. Raises what the store raises."""
        store, name, key = call.daemon.store, call.container, call.key
        match call.kind:
            case "get":
                try:
                    found = store.get(name, key)
                except NoSuchKeyError:
                    call.daemon.seen[call.place] = Seen(None)
                    return read(key, None)
                call.daemon.seen[call.place] = Seen(found.value, found.timestamp)
                return read(key, found.value)
            case "list":
                return listed([one.key for one in store.list(name) if one.key != DAMAGED])
            case "append":
                return self._append(call)
            case "tput":
                return self._write_together(call)
            case "clear":
                store.keys.overwritten.clear_due()
                return None
            case "scrub":
                self.repair(call.daemon)
                return None
            case "create":
                call.container, call.key = REGISTRY, name
                call.perhaps = replaced(name, None, "there")
                try:
                    store.create_container(name)
                except ContainerExistsError:
                    return unless(name, None)
                return call.perhaps
            case "containers":
                call.container = REGISTRY
                return listed(store.containers())
        return self._write(call)

    def _write(self, call: Call) -> Effect:
        store, place = call.daemon.store, call.place
        value, condition, done, refused = self._meant(call)
        call.perhaps = done
        try:
            if value is None:
                store.delete(*place, PRESENT)
            else:
                written = store.put(*place, value, condition)
                call.daemon.seen[place] = Seen(value, written)
        except ConditionNotMetError:
            call.perhaps = None
            return refused
        return done

    def _write_together(self, call: Call) -> Effect:
        """Write two keys at one moment, perhaps under the condition that the second has a value."""
        other = KEYS[1 - KEYS.index(call.key)]
        values = {call.key: self._value(), other: self._value() if self._chance.random() < 0.7 else None}
        needed = {Key(call.container, other): PRESENT} if self._chance.random() < 0.5 else {}
        done = wrote(values)
        call.perhaps = (lambda state: done(state) if other in state else None) if needed else done
        try:
            call.daemon.store.tput({Key(call.container, key): one for key, one in values.items()}, needed)
        except ConditionNotMetError:
            call.perhaps = None
            return deleted(other, False)
        return call.perhaps

    def _meant(self, call: Call) -> tuple[bytes | None, Condition | None, Effect, Effect]:
        """What to write, under which condition; what that does, and what it means when it is refused."""
        key, value = call.key, self._value()
        match call.kind:
            case "put":
                return value, None, wrote({key: value}), wrote({})
            case "delete":
                return None, PRESENT, deleted(key, True), deleted(key, False)
            case "put if present":
                return value, PRESENT, _replaced_any(key, value), deleted(key, False)
        seen = call.daemon.seen.get(call.place, Seen(None))
        if call.kind == "put if absent" or seen.tag is None:
            return value, ABSENT, replaced(key, None, value), unless(key, None)
        return value, Condition(tag=seen.tag), replaced(key, seen.value, value), unless(key, seen.value)

    def _append(self, call: Call) -> Effect:
        effects: list[Effect] = []

        def change(before: bytes | None) -> bytes:
            value = self._value()
            call.perhaps = replaced(call.key, before, value)
            effects.append(call.perhaps)
            return value

        call.daemon.store.edit(*call.place, change)
        return effects[-1]

    def _value(self) -> bytes:
        """No two are alike."""
        self._values += 1
        value = b"%d " % self._values
        return value + self._chance.randbytes(5000) if self._chance.random() < _LARGE else value

    def repair(self, daemon: Daemon) -> list[str]:
        """Repair all values; what is wrong afterwards on clouds that do not lie."""
        mender = CloudMender(daemon.store)
        wrong = []
        for held in mender.held():
            mender.mend(held, self._place.clouds)
            for cloud in self._place.clouds:
                finding = mender.look_at(held, cloud)
                if finding is not None and cloud not in self._clouds.liars:
                    wrong.append(f"{held.label} on {cloud}: {finding.what}")
        return wrong

    # -- protocols alone -------------------------------------------------------------------------

    def started(self, call: Call, container: bytes) -> Alone:
        """An operation on a key of the container with this id, as `CloudKeys` carries it out."""
        keys, draft = call.daemon.store.keys, None
        protocol: Protocol[Any]
        finish: Callable[[Any], Effect]
        if call.kind == "list":
            protocol = keys._list(container)
            finish = partial(_listed, keys)
        elif call.kind == "get":
            protocol = read_register(keys._register(container, call.key), Part.VALUE)
            finish = self._reader(call)
        else:
            value, condition, done, refused = self._meant(call)
            call.perhaps = done
            draft = keys._draft(call.key, value, b"", 0)
            register = keys._register(container, call.key)
            if condition is None:
                protocol = register.write(draft)
            else:
                protocol = write_if(register, draft, partial(_check, register, call.key, condition))

            def written(version: Version | None) -> Effect:
                if version is None:
                    return refused
                keys.overwritten.add(register.names.prefix, version)
                if value is not None:
                    call.daemon.seen[call.place] = Seen(value, timestamp_of(version))
                return done

            finish = written
        return Alone(call, UnderWay(self._clouds, call.daemon.number, protocol), draft, finish)

    def _reader(self, call: Call) -> Callable[[Found | None], Effect]:
        def finish(found: Found | None) -> Effect:
            if found is None or not found.version.live:
                return read(call.key, None)
            value, _ = call.daemon.store.keys.codec.value(found.version, found.parts)
            call.daemon.seen[call.place] = Seen(value, timestamp_of(found.version))
            return read(call.key, value)

        return finish

    # -- members that lie ------------------------------------------------------------------------

    def damage(self, store: CloudStore, container: bytes) -> None:
        """Write to a key what no correct device writes: objects that fit no name, or say nothing."""
        keys = store.keys
        draft = keys._draft(DAMAGED, b"value", b"", 0)
        nonsense = self._chance.randbytes(9)
        if self._chance.random() < 0.5:
            draft.objects = lambda _: nonsense
        else:
            sealed = keys.codec._sealer.seal(draft.write, nonsense)
            head = struct.pack(">BHH", 1, len(nonsense), len(sealed)) + sealed
            draft.size, draft.verifier, draft.objects = len(head), keys.names.verifier(head), lambda _: head
        keys.run("", keys._register(container, DAMAGED).write(draft))


def _replaced_any(key: str, value: object) -> Effect:
    return lambda state: {**state, key: value} if key in state else None


def _listed(keys: CloudKeys, snapshot: Snapshot) -> Effect:
    """See `CloudKeys.snapshot`. Raises HybrisError when something was overwritten and deleted since."""
    names = []
    for name, version in snapshot.latest.items():
        found = keys._look_safely(keys._register_at(name), version) if version.live else ()
        if found is None:
            raise HybrisError(BUSY[0])
        if isinstance(found, Metadata) and found.key != DAMAGED:
            names.append(found.key)
    return listed(sorted(names))
