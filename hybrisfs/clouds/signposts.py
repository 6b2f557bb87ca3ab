"""Keeping the signposts of a volume, and reading those of other devices."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from hybrisfs.clouds.signpost import SIGNPOST_LIMIT, SIGNPOST_NAME, decode_signpost, encode_signpost
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.poll import Changed, Look
from hybrisfs.merge.cloud_set import CloudRecord, entries_of, read_clouds, read_redundancy
from hybrisfs.parts import Ground
from hybrisfs.sharing.sharing import Sharing
from sync import DecodeError, head_name

__all__ = ["Signposts"]

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 15.0


class Signposts:
    """Used by one thread."""

    def __init__(self, ground: Ground, sharing: Sharing, engine: Engine) -> None:
        self._ground = ground
        self._sharing = sharing
        self._engine = engine
        self._posted: object = None
        self._has_read = False

    def read(self) -> Mapping[int, CloudRecord]:
        """The clouds that signposts on more than f clouds tell of alike: one of these does not lie. While
        this is the only device it looks for them once: it may have been restored from a backup."""
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
        cloud that is not in use any more. That of a device that only reads nobody would take."""
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
        data = encode_signpost(entries, self._ground.config.id, self._ground.ring.segments, key)
        refused = False
        for number in [*self._engine.in_use, *([] if also is None else [also])]:
            refused |= upkeep.put(number, SIGNPOST_NAME, data) is not None
            for device, sighting in heads.items():
                if sighting.head is not None and device != self._sharing.device:
                    upkeep.put_if_absent(number, head_name(device), sighting.head)
        if not refused:
            self._posted = state
