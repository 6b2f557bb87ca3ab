"""The log of a reserve: how it lets the machine in that was recovered, and votes on removals.

A reserve signs nothing but that. Its updates depend on none but each other, so they can be made, and accepted
by all devices, without the rest of the log. Each is a segment of its own, and the reserve's head leads others
to it, as that of any device.

Two machines that recover at the same moment fork the reserve, which loses nothing: both branches let a
machine in, and a machine that sees both on the clouds puts a head there that names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.members.members import Member, member_key
from hybrisfs.state.database import Database
from hybrisfs.state.updates import LogRows, UpdateLog
from sync import (
    MAX_CLOCK,
    MAX_OWN_TIPS,
    NONCE_SIZE,
    Accepted,
    DeviceKey,
    Head,
    LogOnClouds,
    LogSegment,
    Members,
    OwnTip,
    SealKeys,
    SegmentId,
    Write,
    decode_signed_header,
    encode_head,
    encode_segment,
    head_name,
    segment_name,
)

__all__ = ["MAX_ADMISSIONS", "ReserveLog"]

MAX_ADMISSIONS: Final = 256
"""Most segments of a reserve that are looked at."""


class ReserveLog:
    """What a reserve has signed, in a database in *folder*, which may be thrown away afterwards."""

    def __init__(
        self,
        folder: Path,
        volume: bytes,
        reserve: DeviceKey,
        keys: SealKeys,
        environment: Environment,
    ) -> None:
        self._reserve = reserve
        self._time_ns = environment.time_ns
        self._random_bytes = environment.random_bytes
        self._keys = keys
        path = folder / "reserve.db"
        Database.create(path, volume)
        self._database = Database(path, environment)
        self._updates = UpdateLog(
            LogRows(self._database.rows), environment, Members([reserve.public]), reserve
        )

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def take(self, segments: Iterable[LogSegment]) -> bool:
        """Accept what clouds hold of it; whether there is something new."""
        news = False
        for segment in sorted(segments, key=lambda one: one.updates[0].header.clock):
            for update in segment.updates:
                news |= isinstance(self._updates.accept_signed(update), Accepted)
        return news

    def take_updates(self, updates: Iterable[bytes]) -> None:
        """Accept what a device has of it, in the order in which it was signed."""
        for update in updates:
            self._updates.accept(update)

    def admit(self, member: Member) -> tuple[str, bytes]:
        """Let a device in: the name of the segment that says so, and the segment."""
        return self.sign([(member_key(member.device), member.encode())])[1:]

    def sign(self, writes: Sequence[Write]) -> tuple[bytes, str, bytes]:
        """Sign an update: it, and the name of its segment, and the segment."""
        before = self._chain()
        update = self._updates.sign(writes, self._time_ns(), 0)
        previous = before[-1] if before else None
        identity = SegmentId.of(update.header.clock, update.header.hash)
        segment = encode_segment([update.data], previous, self._keys, self._random_bytes(NONCE_SIZE))
        return update.data, segment_name(self._reserve.device_id, identity), segment

    def head(self) -> tuple[str, bytes]:
        """The name of the reserve's head, and the head. It has signed something."""
        chain, tips, now_ns = self._chain(), self._updates.own_tips(), self._time_ns()
        head = Head(
            self._updates.volume,
            self._reserve.device_id,
            now_ns,
            now_ns,
            self._updates.state.vector,
            tuple(OwnTip(tip.clock, tip.hash) for tip in tips[:MAX_OWN_TIPS]),
            LogOnClouds(len(chain), chain[-1], chain[-1].first),
            offline=True,
        )
        sealed = encode_head(head, self._reserve, self._keys, self._random_bytes(NONCE_SIZE))
        return head_name(self._reserve.device_id), sealed

    def _chain(self) -> list[SegmentId]:
        """The segments of the own chain, oldest first."""
        headers = (decode_signed_header(data) for data in self._updates.own_between(1, MAX_CLOCK))
        return [SegmentId.of(header.clock, header.hash) for header in headers]
