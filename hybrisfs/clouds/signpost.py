"""The object `signpost` on every cloud of a volume whose clouds were changed: which clouds it has now.

A device that was away while all clouds that it knows were replaced could not read the updates that say so.
What it finds here counts only for clouds that no register of its own tells of, and no longer; and only when a
member signed it, and f+1 of the clouds that the device knows by registers tell the same
(`hybrisfs.clouds.signpost`). For the keys of old epochs are also known to devices that were removed.

    magic "HFSP", version u16 = 2, sealed (`sync.seal`, key of log segments):
    writer 16,
    count (varint <= 257), then key (blob <= 2) and value (blob <= 8192) of each cloud or redundancy register,
    signature 64 of the magic, the version, the volume (16) and all before, by the writer

A device that changes the clouds overwrites it. It stays behind on a cloud that left.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.probe import Changed, Look
from hybrisfs.merge.cloud_set import CloudRecord, cloud_key, entries_of, read_clouds, read_redundancy
from hybrisfs.parts import Ground
from sync import DEVICE_ID_SIZE, DecodeError, DeviceKey, Members, SealKeys, Write, head_name
from sync.codec import Reader, Writer
from sync.identity import SIGNATURE_SIZE, verify
from sync.seal import NONCE_SIZE, open_sealed, seal

__all__ = ["SIGNPOST_NAME", "Signposts", "decode_signpost", "encode_signpost"]

log = logging.getLogger(__name__)

SIGNPOST_NAME: Final = "signpost"
SIGNPOST_LIMIT: Final = 1 << 21
_HEADER: Final = Writer().raw(b"HFSP").u16(2).getvalue()
_MOST: Final = 257
_MOST_VALUE: Final = 8192


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


def decode_signpost(data: bytes, volume: bytes, keys: SealKeys, members: Members) -> dict[int, CloudRecord]:
    """The clouds that it names, by number. Raises DecodeError, also when none of *members* signed it."""
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
    for _ in range(inner.varint(_MOST)):
        name, value = inner.blob(2), inner.blob(_MOST_VALUE)
        if len(name) == 2 and name == cloud_key(name[1]):
            clouds[name[1]] = CloudRecord.decode(value)
    inner.raw(SIGNATURE_SIZE)
    inner.end()
    return clouds


# -- keeping the signposts of a volume, and reading those of other devices ------------------------------


_LOOK_SECONDS: Final = 15.0


class Signposts:
    """Used by one thread."""

    def __init__(self, ground: Ground, engine: Engine) -> None:
        self._ground = ground
        self._sharing = ground.sharing
        self._engine = engine
        self._posted: object = None
        self._has_read = False

    def read(self) -> Mapping[int, CloudRecord]:
        """The clouds on which signposts on more than f clouds agree, because one of these does not lie. While
        this is the only device, it searches for them once: it may have been restored from a backup."""
        if self._has_read and len(self._sharing.current_members()) < 2:
            return {}
        self._has_read = True
        members = self._sharing.full_members()
        known = {one.number: one.url for one in self._ground.config.clouds if one.proven}
        looks = [Look(SIGNPOST_NAME, number, None) for number in known]
        answers = self._engine.poll_objects(looks, limit=SIGNPOST_LIMIT, timeout=_LOOK_SECONDS)
        places: dict[tuple[int, str], set[str]] = defaultdict(set)
        heard: dict[int, CloudRecord] = {}
        for look, answer in answers.items():
            if isinstance(answer, Changed):
                try:
                    found = decode_signpost(
                        answer.data, self._ground.config.id, self._ground.ring.segments, members
                    )
                except DecodeError as error:
                    log.warning("a cloud has a wrong signpost: %s", error)
                    continue
                for number, record in found.items():
                    places[number, record.url].add(known[look.cloud])
                    if len(places[number, record.url]) > self._ground.config.f:
                        heard[number] = record
        return heard

    def post(self, also: int | None = None) -> None:
        """Put the signpost, and heads of other devices, where they are missing or out of date; *also* on a
        cloud that is not in use any more. A device that may only read puts none: no other device would accept
        it."""
        upkeep = self._engine.upkeep
        with self._ground.fs.state.transaction() as tx:
            if not self._ground.fs.is_full:
                return
            registers = tx.registers
            told = {number: record for number, (record, _) in read_clouds(registers).items()}
            redundancy = read_redundancy(registers)
            heads = tx.sightings.load()
        state = (tuple(sorted(told.items())), redundancy, self._engine.in_use, also)
        if not told or redundancy is None or state == self._posted:
            return
        entries, key = entries_of(told, redundancy[0]), self._ground.ring.keys.device
        nonce = self._ground.fs.environment.random_bytes(NONCE_SIZE)
        data = encode_signpost(entries, self._ground.config.id, self._ground.ring.segments, key, nonce)
        refused = False
        for number in [*self._engine.in_use, *([] if also is None else [also])]:
            refused |= upkeep.put(number, SIGNPOST_NAME, data) is not None
            for device, sighting in heads.items():
                if sighting.head is not None and device != self._sharing.device:
                    upkeep.put_if_absent(number, head_name(device), sighting.head)
        if not refused:
            self._posted = state
