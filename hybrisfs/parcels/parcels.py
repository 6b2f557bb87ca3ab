"""Parcels of an open volume: made, listed, revoked, and deleted when their time is over.

Nothing of them is in the log: the record of each is on its cloud, so that every device can list and revoke
it. It is there before anything else of the parcel, so that what a broken upload leaves is deleted in time.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hybrisfs.api.parcels import Parcel, ParcelList
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.parcels.format import (
    ID_SIZE,
    KEY_SIZE,
    LARGEST,
    MAX_RECORD,
    PIECE,
    PREFIX,
    Record,
    Seal,
    decode_record,
    encode_record,
    id_in,
    page,
    page_name,
    piece_names,
    record_name,
)
from hybrisfs.parts import Clouds
from hybrisfs.shown import shown
from sync import NONCE_SIZE, DecodeError

__all__ = ["Contents", "Parcels"]

log = logging.getLogger(__name__)

_DAY: Final = 86400
_LOOK_EVERY: Final = 6 * 3600.0  # seconds between two looks for what is over
_LOOK_SECONDS: Final = 60.0  # of such a look at one cloud, which may make up parcels and be slow
_MOST_NAMES: Final = 50_000  # of objects of parcels on one cloud
_TRIES: Final = 3
_DIGITS: Final = 8
_PAGE_TYPE: Final = "text/html; charset=utf-8"
_PIECE_TYPE: Final = "application/octet-stream"


class Contents(NamedTuple):
    """A file: its size in bytes, and all of it in pieces. These raise HybrisError when it is changed."""

    size: int
    pieces: Iterator[bytes]


class _Place(NamedTuple):
    """A cloud, and URLs of the page and of the pieces that it will have."""

    cloud: int
    page: str
    pieces: list[str]


class _Found(NamedTuple):
    """What a cloud has of a parcel. *record*: None when it cannot be read."""

    parcel: bytes
    cloud: int
    names: Sequence[str]
    record: Record | None

    @property
    def is_whole(self) -> bool:
        return page_name(self.parcel) in self.names


class Parcels:
    """Its methods may be called from any thread, without the volume's lock; they raise HybrisError."""

    def __init__(self, clouds: Clouds, read: Callable[[PurePath, int], Contents]) -> None:
        """*read* gives the content of a file, by its path in the volume, in pieces of so many bytes."""
        self._ground = clouds.ground
        self._engine = clouds.engine
        self._read = read
        environment = clouds.ground.fs.environment
        self._time, self._monotonic = environment.time, environment.monotonic
        self._random_bytes, self._chance = environment.random_bytes, environment.chance()
        self._due = self._monotonic()

    @property
    def _upkeep(self) -> Upkeep:
        return self._engine.upkeep

    # -- making one ------------------------------------------------------------------------------

    def make(self, path: PurePath, days: int, cloud: str | None, tell: Callable[[int, int], None]) -> Parcel:
        """Put a file on a cloud for somebody who gets the link. *tell* hears how many bytes are there and how
        many will be; what it raises ends the work, and nothing stays then."""
        if self._ground.signals.transfers_paused:
            raise HybrisError("transfers are paused", "", "hybrisfs resume lets them go on.")
        contents = self._read(path, PIECE)
        if contents.size > LARGEST:
            raise UsageError(
                f"{shown(str(path))} is too large to share", f"browsers are given {LARGEST >> 30} GiB at most"
            )
        parcel, sealing = self._random_bytes(ID_SIZE), Seal(self._random_bytes(KEY_SIZE))
        made = int(self._time())
        place = self._place(parcel, path, contents.size, days * _DAY, cloud)
        link = f"{place.page}#{sealing.fragment}"
        record = Record(
            made, made + days * _DAY, contents.size, self._ground.sharing.device, os.fsencode(path), link
        )
        name = os.fsencode(path.name).decode(errors="replace")
        try:
            self._put(place.cloud, record_name(parcel), self._sealed(parcel, record))
            self._put_pieces(place.cloud, parcel, contents, sealing, tell)
            self._put(place.cloud, page_name(parcel), page(sealing.head(name, contents.size), place.pieces))
        except BaseException:
            self._delete(place.cloud, [*piece_names(parcel, contents.size), record_name(parcel)])
            raise
        found = _Found(parcel, place.cloud, [page_name(parcel)], record)
        return self._described(found, record)

    def _put_pieces(
        self,
        cloud: int,
        parcel: bytes,
        contents: Contents,
        sealing: Seal,
        tell: Callable[[int, int], None],
    ) -> None:
        done = 0
        for number, (name, piece) in enumerate(
            zip(piece_names(parcel, contents.size), contents.pieces, strict=True)
        ):
            tell(done, contents.size)
            self._put(cloud, name, sealing.piece(number, piece))
            done += len(piece)
        tell(done, contents.size)

    def _place(self, parcel: bytes, path: PurePath, size: int, seconds: int, wanted: str | None) -> _Place:
        """The best cloud that can make links that browsers open."""
        reasons = []
        for number in self._candidates(wanted):
            pages = self._upkeep.signed_urls(number, [page_name(parcel)], seconds, _PAGE_TYPE)
            pieces = self._upkeep.signed_urls(number, piece_names(parcel, size), seconds, _PIECE_TYPE)
            if pages.value is None or pieces.value is None:
                reasons.append(f"{self._name(number)}: {pages.reason or pieces.reason}")
            elif not _is_secure(pages.value[0]):
                reasons.append(f"{self._name(number)}: browsers open such pages with https only")
            else:
                return _Place(number, pages.value[0], pieces.value)
        why = "; ".join(reasons) or "none of its clouds that work now can make links for others"
        raise HybrisError(
            f"{shown(str(path))} cannot be shared", why, "S3, Google Cloud Storage and Azure make such links."
        )

    def _candidates(self, wanted: str | None) -> list[int]:
        order = self._upkeep.signing(PIECE)
        if wanted is None:
            return order
        number = next((one.number for one in self._ground.config.clouds if one.name == wanted), None)
        if number is None:
            raise UsageError(f"there is no cloud {shown(wanted)}", "", "hybrisfs cloud list names them.")
        if number not in order:
            raise UsageError(
                f"{shown(wanted)} cannot make links for others",
                "it is of another kind, or does not work now",
                "S3, Google Cloud Storage and Azure make such links.",
            )
        return [number]

    def _put(self, cloud: int, name: str, data: bytes) -> None:
        reason: str | None = ""
        for _ in range(_TRIES):
            reason = self._upkeep.put(cloud, name, data)
            if reason is None:
                return
        raise HybrisError(
            "the file could not be shared", f"{self._name(cloud)}: {reason}", "Try again later."
        )

    def _sealed(self, parcel: bytes, record: Record) -> bytes:
        ring = self._ground.ring.parcels
        try:
            return encode_record(parcel, record, self._ground.config.id, ring, self._random_bytes(NONCE_SIZE))
        except ValueError as error:
            raise HybrisError("this file cannot be shared", str(error)) from error

    # -- those that there are --------------------------------------------------------------------

    def all(self) -> ParcelList:
        """All parcels, the newest first, and the clouds that could not be asked."""
        found, silent = self._look()
        parcels = [self._described(one, one.record) for one in found if one.record is not None]
        parcels.sort(key=lambda one: one.made, reverse=True)
        return ParcelList(self._ground.name, parcels, [self._name(number) for number in silent])

    def revoke(self, which: str) -> Parcel:
        """Delete a parcel, by the path of its file, if only one has that, or by its id or the first digits of
        it, at least `_DIGITS`."""
        found, silent = self._look()
        path = which.strip("/")
        chosen = [
            one for one in found if path and one.record is not None and os.fsdecode(one.record.path) == path
        ]
        if not chosen and len(which) >= _DIGITS:
            chosen = [one for one in found if one.parcel.hex().startswith(which)]
        if not chosen:
            asked = f"not asked: {', '.join(map(self._name, silent))}" if silent else ""
            raise UsageError(
                f"nothing that is shared is called {shown(which)}", asked, "hybrisfs share list shows all."
            )
        if len(chosen) > 1:
            raise UsageError(
                f"{shown(which)} is shared {len(chosen)} times",
                "",
                "hybrisfs share list shows their ids.",
            )
        [one] = chosen
        record = one.record or Record(0, 0, 0, b"", b"", "")
        reason = self._delete(one.cloud, one.names)
        if reason is not None:
            raise HybrisError(
                "the link may work still", f"{self._name(one.cloud)}: {reason}", "Try again later."
            )
        return self._described(one, record)

    def look_after(self) -> None:
        """Delete what is over; looks now and then only. Raises nothing."""
        if self._monotonic() < self._due or self._ground.signals.transfers_paused:
            return
        self._due = self._monotonic() + _LOOK_EVERY
        found, _ = self._look(_LOOK_SECONDS)
        for one in found:
            if one.record is not None and one.record.expires < self._time():
                reason = self._delete(one.cloud, one.names)
                if reason is not None:
                    log.info("volume %s: a parcel that is over stays: %s", self._ground.name, reason)

    def _look(self, seconds: float = math.inf) -> tuple[list[_Found], list[int]]:
        """The parcels on the clouds, and the clouds that do not tell. Of each cloud as many as can be read in
        so many *seconds*, any of them."""
        found, silent = [], []
        for number in self._upkeep.all_signing():
            names = self._upkeep.names(number, PREFIX, _MOST_NAMES)
            if names is None:
                silent.append(number)
                continue
            by_id: defaultdict[bytes, list[str]] = defaultdict(list)
            for name in names:
                parcel = id_in(name)
                if parcel is not None:
                    by_id[parcel].append(name)
            parcels, until = list(by_id), self._monotonic() + seconds
            self._chance.shuffle(parcels)
            for one in parcels:
                if self._monotonic() >= until:
                    break
                found.append(_Found(one, number, by_id[one], self._record(number, one)))
        return found, silent

    def _record(self, cloud: int, parcel: bytes) -> Record | None:
        data = self._upkeep.read(cloud, record_name(parcel), MAX_RECORD).value
        if data is None:
            return None
        try:
            return decode_record(data, parcel, self._ground.config.id, self._ground.ring.parcels)
        except DecodeError as error:
            log.info("volume %s: a record of a parcel cannot be read: %s", self._ground.name, error)
            return None

    def _delete(self, cloud: int, names: Sequence[str]) -> str | None:
        """Delete objects, records last; why some may be there still."""
        records = [name for name in names if name.endswith("/record")]
        others = [name for name in names if name not in records]
        reason = self._upkeep.delete(cloud, others) if others else None
        return reason if reason is not None else self._upkeep.delete(cloud, records)

    def _described(self, found: _Found, record: Record) -> Parcel:
        with self._ground.fs.state.transaction() as tx:
            maker = tx.members.shown_name(record.maker) if record.maker else ""
        return Parcel(
            id=found.parcel.hex(),
            path=os.fsdecode(record.path),
            size=record.size,
            made=record.made,
            expires=record.expires,
            cloud=self._name(found.cloud),
            device=maker,
            link=record.link,
            whole=found.is_whole,
        )

    def _name(self, number: int) -> str:
        return next(
            (one.name for one in self._ground.config.clouds if one.number == number), f"cloud {number}"
        )


def _is_secure(url: str) -> bool:
    """Whether browsers open what is encrypted on a page with that URL (W3C Secure Contexts, 3.1)."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"
