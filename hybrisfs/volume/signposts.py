"""Keeping the signposts of a volume, and reading those of other devices."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hybrisfs.dispersal.poll import Changed, Look
from hybrisfs.merge.cloud_set import CloudRecord, entries_of, read_clouds, read_redundancy
from hybrisfs.store.sightings import SightingTable
from hybrisfs.volume.signpost import SIGNPOST_LIMIT, SIGNPOST_NAME, decode_signpost, encode_signpost
from sync import DecodeError, head_name

if TYPE_CHECKING:
    from hybrisfs.volume.volume import Volume

__all__ = ["Signposts"]

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 15.0


class Signposts:
    """Used by one thread."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._posted: object = None
        self._has_read = False

    def read(self) -> Mapping[int, CloudRecord]:
        """The clouds that signposts on more than f clouds tell of alike: one of these does not lie. While
        this is the only device it looks for them once: it may have been restored from a backup."""
        volume = self._volume
        if self._has_read and len(volume.sharing.current_members()) < 2:
            return {}
        self._has_read = True
        members = volume.sharing.full_members()
        known = {one.number: one.url for one in volume.config.clouds if one.proven}
        looks = [Look(SIGNPOST_NAME, number, None) for number in known]
        answers = volume.engine.poll_objects(looks, limit=SIGNPOST_LIMIT, timeout=_LOOK_SECONDS)
        places: dict[tuple[int, str], set[str]] = defaultdict(set)
        heard: dict[int, CloudRecord] = {}
        for look, answer in answers.items():
            if isinstance(answer, Changed):
                try:
                    found = decode_signpost(answer.data, volume.config.id, volume.ring.segments, members)
                except DecodeError as error:
                    log.warning("a cloud has a wrong signpost: %s", error)
                    continue
                for number, record in found.items():
                    places[number, record.url].add(known[look.cloud])
                    if len(places[number, record.url]) > volume.config.f:
                        heard[number] = record
        return heard

    def post(self, also: int | None = None) -> None:
        """Put the signpost, and heads of other devices, where they are missing or out of date; *also* on a
        cloud that is not in use any more. That of a device that only reads nobody would take."""
        volume, upkeep = self._volume, self._volume.engine.upkeep
        with volume.fs.lock:
            if not volume.fs.is_full:
                return
            registers = volume.sharing.registers
            told = {number: record for number, (record, _) in read_clouds(registers).items()}
            redundancy = read_redundancy(registers)
        state = (tuple(sorted(told.items())), redundancy, volume.engine.in_use, also)
        if not told or redundancy is None or state == self._posted:
            return
        entries, key = entries_of(told, redundancy[0]), volume.ring.keys.device
        data = encode_signpost(entries, volume.config.id, volume.ring.segments, key)
        heads = SightingTable(volume.fs.db, volume.fs.lock).load()
        refused = False
        for number in [*volume.engine.in_use, *([] if also is None else [also])]:
            refused |= upkeep.put(number, SIGNPOST_NAME, data) is not None
            for device, sighting in heads.items():
                if sighting.head is not None and device != volume.updates.device:
                    upkeep.put_if_absent(number, head_name(device), sighting.head)
        if not refused:
            self._posted = state
