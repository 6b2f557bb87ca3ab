"""Signposts, the objects `signposts/RECORD` and `signpost` on every cloud: which clouds the volume has now.

They are there once the clouds of the volume were changed. RECORD is that of a version of kind 1
(`hybrisfs.quorums.names`), hashed with a key that follows from the first epoch's, which every device
has, however long it was away. The number of its time is the clock below, but at most 2^48 - 1, and the writer
8 bytes of a hash of all entries; write and verifier are 24 bytes of a hash of the object, keyed likewise; k
is 1 and the commitment 0. The object `signpost` has the bytes of the latest version, for programs that know
no versions.

A device that was away while all clouds that it knew were replaced could not read the updates that say so.
What it finds here counts only for clouds that no register of its own tells of, and no longer; and only when a
member signed it, and more than f of the clouds that the device knows by registers tell of the same place
(`quorums.thresholds.first_contact`). For the keys of old epochs are also known to devices that were
removed, and a device that was away may not know of the removal.

    magic "HFSP", version u16 = 2, sealed (`sync.seal`, key of log segments):
    writer 16,
    count (varint <= 257), then key (blob <= 2) and value (blob <= 8192) of each cloud or redundancy register;
    one entry with an empty key: u64, the highest clock of the updates that say the others (0 without it)
    signature 64 of the magic, the version, the volume (16) and all before, by the writer

Programs before this one have no entry with an empty key, and skip it. It stays behind on a cloud that left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from blake3 import blake3
from msgspec import Struct

from hybrisfs.dispersal.engine import Engine
from hybrisfs.merge.cloud_records import CloudRecord, cloud_key, entries_of, read_clouds, read_redundancy
from hybrisfs.parts import Ground
from hybrisfs.quorums.contact import ContactRegister, Sight, Superseding, self_proving
from hybrisfs.quorums.names import RegisterNames, Version
from hybrisfs.quorums.rounds import Answer
from hybrisfs.quorums.runner import Runner
from hybrisfs.quorums.thresholds import Standing, first_contact
from sync import DEVICE_ID_SIZE, DecodeError, DeviceKey, Members, SealKeys, Write, head_name
from sync.codec import Reader, Writer
from sync.identity import SIGNATURE_SIZE, verify
from sync.seal import NONCE_SIZE, open_sealed, seal

__all__ = [
    "SIGNPOST_NAME",
    "Signpost",
    "Signposts",
    "clock_entry",
    "decode_signpost",
    "encode_signpost",
    "signpost_names",
    "version_of_signpost",
]

log = logging.getLogger(__name__)

SIGNPOST_NAME: Final = "signpost"
SIGNPOST_LIMIT: Final = 1 << 21
_PREFIX: Final = "signposts/"
_HEADER: Final = Writer().raw(b"HFSP").u16(2).getvalue()
_MOST: Final = 257
_MOST_VALUE: Final = 8192
_CLOCK: Final = b""


class Signpost(Struct, frozen=True):
    """What a signpost says: the clouds by number, and the clock and the hash of all of it."""

    clouds: Mapping[int, CloudRecord]
    clock: int
    contents: bytes


def clock_entry(clock: int) -> Write:
    """The entry that says up to which clock of the log the others follow from it."""
    return _CLOCK, Writer().u64(clock).getvalue()


def encode_signpost(
    entries: Iterable[Write], volume: bytes, keys: SealKeys, device: DeviceKey, nonce: bytes
) -> bytes:
    """The object with which *device* publishes these registers."""
    told = [(name, value) for name, value in entries if value is not None]
    out = Writer().raw(device.device_id).varint(len(told))
    for name, value in told:
        out.blob(name).blob(value)
    signed = out.getvalue()
    payload = signed + device.sign(_HEADER + volume + signed)
    return seal(_HEADER, volume, payload, keys, nonce)


def decode_signpost(data: bytes, volume: bytes, keys: SealKeys, members: Members) -> Signpost:
    """What it says. Raises DecodeError, also when none of *members* signed it."""
    reader = Reader(data)
    if reader.raw(len(_HEADER)) != _HEADER:
        raise DecodeError("no signpost, or one of another version")
    payload = open_sealed(reader, _HEADER, volume, keys)
    inner = Reader(payload)
    public = members.public_key(inner.raw(DEVICE_ID_SIZE))
    signed, signature = payload[:-SIGNATURE_SIZE], payload[-SIGNATURE_SIZE:]
    if public is None or not verify(public, _HEADER + volume + signed, signature):
        raise DecodeError("no member signed this signpost")
    clouds: dict[int, CloudRecord] = {}
    clock = 0
    for _ in range(inner.varint(_MOST)):
        name, value = inner.blob(2), inner.blob(_MOST_VALUE)
        if name == _CLOCK:
            clock = _read_clock(value)
        elif len(name) == 2 and name == cloud_key(name[1]):
            clouds[name[1]] = CloudRecord.decode(value)
    inner.raw(SIGNATURE_SIZE)
    inner.end()
    return Signpost(clouds, clock, blake3(signed[DEVICE_ID_SIZE:]).digest())


def _read_clock(value: bytes) -> int:
    reader = Reader(value)
    clock = reader.u64()
    reader.end()
    return clock


def signpost_names(key: bytes) -> RegisterNames:
    """The names of the versions; *key*: 32 bytes that all devices of the volume have, also those that were
    away."""
    return RegisterNames(_PREFIX, blake3(b"hybrisfs signpost names", key=key).digest())


def version_of_signpost(data: bytes, signpost: Signpost, key: bytes) -> Version:
    """The version that these bytes are; *key*: see `signpost_names`."""
    hashed = blake3(b"hybrisfs signpost contents" + signpost.contents, key=key).digest()
    digest = blake3(b"hybrisfs signpost version" + data, key=key).digest()
    return self_proving(signpost.clock, hashed, digest, len(data))


# -- keeping the signposts of a volume, and reading those of other devices ------------------------------


_LOOK_SECONDS: Final = 15.0
_LIST_SECONDS: Final = 86_400.0
"""After which the versions are listed again, though the object `signpost` is still the one of the last list.
A device that puts a version overwrites that object, and a list costs a dozen times as much as a look."""
_WATCH_SECONDS: Final = 3600.0
"""The same when a device was removed: it may put versions alone, which no other member looks at, but one that
was away might."""
_PUT: Final = "the signposts are not on the clouds"


class _Looked(Struct, frozen=True):
    """The last look at all versions."""

    about: object
    """The clouds, f and the members that it was made with."""
    listed_at: float
    register: ContactRegister
    sight: Sight
    heard: Mapping[int, CloudRecord]


class Signposts:
    """Used by one thread."""

    def __init__(self, ground: Ground, engine: Engine) -> None:
        self._ground = ground
        self._sharing = ground.sharing
        self._engine = engine
        environment = ground.fs.environment
        self._runner = Runner(engine.clouds, environment, _LOOK_SECONDS)
        self._superseding = Superseding(environment)
        self._posted: object = None
        self._latest: tuple[Version, bytes] | None = None
        """What was posted."""
        self._seen: tuple[ContactRegister, Sight] | None = None
        """Since `post`."""
        self._has_read = False
        self._last: _Looked | None = None
        self._turn = 0
        self._clock = environment.monotonic

    def _key(self) -> bytes:
        return self._ground.ring.keys.first.metadata

    def _look(self, clouds: Iterable[int]) -> tuple[ContactRegister, Sight, dict[Version, Signpost]]:
        """The register, what these clouds show of it, and what the versions say that members signed."""
        config, segments, key = self._ground.config, self._ground.ring.segments, self._key()
        members = self._sharing.full_members()
        said: dict[Version, Signpost] = {}

        def version_of(data: bytes) -> Version | None:
            try:
                signpost = decode_signpost(data, config.id, segments, members)
            except DecodeError as error:
                log.warning("a cloud has a wrong signpost: %s", error)
                return None
            version = version_of_signpost(data, signpost, key)
            said[version] = signpost
            return version

        register = ContactRegister(signpost_names(key), SIGNPOST_NAME, SIGNPOST_LIMIT, version_of)
        return register, self._runner.run("the signposts cannot be read", register.look(clouds)), said

    def read(self, *, closely: bool) -> Mapping[int, CloudRecord]:
        """The clouds that signposts on more than f clouds tell, because one of these does not lie. While this
        is the only device, it searches for them once: it may have been restored from a backup. Unless it
        looks *closely*, it lists the versions only when it sees that there may be others than before."""
        if self._has_read and len(self._sharing.current_members()) < 2:
            return {}
        self._has_read = True
        known = {one.number: one.url for one in self._ground.config.clouds if one.proven}
        about = known, self._ground.config.f, frozenset(self._sharing.full_members())
        last = self._last
        if last is not None and not closely and last.about == about and self._is_as_before(last):
            return last.heard
        register, sight, said = self._look(known)
        self._seen = register, sight
        heard = self._heard(sight, said, known)
        self._last = _Looked(about, self._clock(), register, sight, heard)
        return heard

    def _is_as_before(self, last: _Looked) -> bool:
        """Whether there is nothing new since that look, by the object `signpost` on f+1 clouds, in turns: so
        one of these does not lie."""
        removed = self._sharing.current_members().former
        if self._clock() - last.listed_at >= (_WATCH_SECONDS if removed else _LIST_SECONDS):
            return False
        self._turn += 1
        clouds = sorted(last.sight.clouds)
        turn = self._turn % max(1, len(clouds))
        asked = [*clouds[turn:], *clouds[:turn]][: self._ground.config.f + 1]
        answers = self._runner.run("the signposts cannot be read", last.register.glance(asked))
        return all(
            answer.fault == "unreadable" or _is_same(answer, last.sight.clouds[cloud].former)
            for cloud, answer in answers.items()
        )

    def _heard(
        self, sight: Sight, said: Mapping[Version, Signpost], known: Mapping[int, str]
    ) -> Mapping[int, CloudRecord]:
        """What more than f of the *known* clouds, by their numbers, tell."""
        tellers: dict[tuple[int, str], set[str]] = {}
        ordered = sorted(sight.candidates, key=lambda one: (one.version.time, one.version.write))
        for version, _, holders in ordered:
            for number, record in said[version].clouds.items():
                tellers.setdefault((number, record.url), set()).update(known[one] for one in holders)
        thresholds = first_contact(self._ground.config.f)
        heard: dict[int, CloudRecord] = {}
        for version, _, _ in ordered:  # what a later one says comes last
            for number, record in said[version].clouds.items():
                standing = thresholds.classify(len(tellers[number, record.url]))
                if standing is not Standing.INCOMPLETE:
                    heard[number] = record
        return heard

    def post(self, also: int | None = None) -> None:
        """Put the signpost, and heads of other devices, where they are missing or out of date; *also* on a
        cloud that is not in use any more. What `read` found missing is put back. A device that may only read
        puts none: no other device would accept it."""
        seen, self._seen = self._seen, None
        with self._ground.fs.state.transaction() as tx:
            if not self._ground.fs.is_full:
                return
            registers = tx.registers
            clouds = read_clouds(registers)
            agreed = read_redundancy(registers)
            heads = tx.sightings.load()
        if not clouds or agreed is None:
            return
        told = {number: record for number, (record, _) in clouds.items()}
        clock = max(stamp.clock for _, stamp in (*clouds.values(), agreed))
        state = (tuple(sorted(told.items())), agreed[0], self._engine.in_use, also)
        if state == self._posted:
            if seen is not None:
                self._put_back(*seen)
            return
        targets = [*self._engine.in_use, *([] if also is None else [also])]
        entries = [*entries_of(told, agreed[0]), clock_entry(clock)]
        refused = self._post(entries, clock, targets)
        for number in targets:
            for device, sighting in heads.items():
                if sighting.head is not None and device != self._sharing.device:
                    self._engine.upkeep.put_if_absent(number, head_name(device), sighting.head)
        if not refused:
            self._posted = state

    def _post(self, entries: Iterable[Write], clock: int, targets: Iterable[int]) -> list[str]:
        """Have these clouds hold the latest signpost; why some do not."""
        ground, key = self._ground, self._key()
        register, sight, _ = self._look(targets)
        nonce = ground.fs.environment.random_bytes(NONCE_SIZE)
        data = encode_signpost(
            entries, ground.config.id, ground.ring.segments, ground.ring.keys.device, nonce
        )
        own = decode_signpost(
            data, ground.config.id, ground.ring.segments, Members([ground.ring.keys.device.public])
        )
        version = version_of_signpost(data, own, key)
        # What another device has posted of the same stays.
        alike = [one for one in sight.candidates if one.version.time == version.time]
        if alike:
            version, data, _ = max(alike, key=lambda one: one.version.write)
        self._latest = version, data
        refused = self._runner.run(_PUT, register.spread(sight, data, version, targets))
        self._clear(register, sight, version, targets)
        return refused

    def _put_back(self, register: ContactRegister, sight: Sight) -> None:
        """Put the signpost back where it was lost, and delete what it has replaced."""
        if self._latest is not None:
            version, data = self._latest
            looked = [n for n in self._engine.in_use if n in sight.clouds]
            lost = [
                n
                for n in looked
                if sight.clouds[n].listed.fault is None and version not in sight.clouds[n].right
            ]
            self._runner.run(_PUT, register.spread(sight, data, version, lost))
            self._clear(register, sight, version, looked)

    def _clear(
        self, register: ContactRegister, sight: Sight, version: Version, clouds: Iterable[int]
    ) -> None:
        kept = not self._superseding.is_due(SIGNPOST_NAME, version, sight, self._engine.f)
        deleting = [n for n in clouds if n not in self._engine.upkeep.refusing()]
        self._runner.run(_PUT, register.clear(sight, version, deleting, kept=kept))


def _is_same(answer: Answer, before: Answer) -> bool:
    return (answer.fault, answer.data) == (before.fault, before.data)
