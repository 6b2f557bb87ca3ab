"""The direct way between the devices of a volume: what the volume asks of its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hybrisfs.topic import Topic
from sync import Head

if TYPE_CHECKING:
    from hybrisfs.peers.service import PeerService, PeerStatus

__all__ = ["Links"]


class Links:
    """Of one volume; there may be none. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._service: PeerService | None = None
        self._heads: Mapping[bytes, Head] = {}
        self.heard = Topic[[Head]]()
        """A linked device has told its head."""

    def are_of(self, service: PeerService | None) -> None:
        """From now on they are those of *service*; None: there are none."""
        self._service = service

    def hear(self, device: bytes, head: Head) -> None:
        """A linked device has told its head."""
        self._heads = {**self._heads, device: head}
        self.heard(head)

    def advanced(self) -> None:
        """The log has grown: linked devices get the new updates."""
        service = self._service
        if service is not None:
            service.advanced()

    def announce(self, head: bytes) -> None:
        """Give linked devices our sealed head."""
        service = self._service
        if service is not None:
            service.send_beacon(head)

    def fetch_chunk(self, identity: bytes, patience: float) -> bytes | None:
        """The bytes of a chunk from a linked device; None when none of them has it."""
        return self.fetch_chunks([identity], patience)[0]

    def fetch_chunks(self, identities: Sequence[bytes], patience: float) -> Sequence[bytes | None]:
        """See `PeerService.fetch_chunks`."""
        service = self._service
        return service.fetch_chunks(identities, patience) if service is not None else [None] * len(identities)

    def heads(self) -> Mapping[bytes, Head]:
        """By device: its newest head that came over a link."""
        return self._heads

    def linked(self) -> set[bytes]:
        """The devices that can be reached directly."""
        return {one.device_id for one in self.status()}

    def status(self) -> Sequence[PeerStatus]:
        service = self._service
        return service.status() if service is not None else ()

    @property
    def port(self) -> int | None:
        """Where other devices reach this one."""
        service = self._service
        return service.port if service is not None else None
