"""The direct way between the devices of a volume: what the volume asks of its links, what these ask of the
volume, when there are any, and through which relays."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from backends.credentials import Credentials
from backends.errors import StoreError
from hybrisfs.checkpoint.checkpointer import Checkpointer
from hybrisfs.errors import HybrisError
from hybrisfs.exchange.following import Following
from hybrisfs.local_parts import LocalParts
from hybrisfs.peers.settings import PeerCallbacks, PeerSettings, Relay
from hybrisfs.settings.config import VolumeConfig
from hybrisfs.topic import Topic
from sync import (
    Action,
    DecodeError,
    Exchange,
    Head,
    NewerFormatError,
    Offer,
    Send,
    UnknownEpochError,
    decode_head,
)

if TYPE_CHECKING:
    from hybrisfs.peers.service import PeerService, PeerStatus

__all__ = ["Links", "Peering", "relays_of"]

log = logging.getLogger(__name__)


class Links:
    """What a volume asks of its links; there may be none. Its methods may be called from any thread."""

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


_SECRET: Final = b"hybrisfs direct links"


class Peering:
    """The links of one volume. No port is open while this is the volume's only device."""

    def __init__(
        self,
        local: LocalParts,
        settings: PeerSettings,
        links: Links,
        following: Following,
        checkpointer: Checkpointer,
        relays: Callable[[], Collection[Relay]],
    ) -> None:
        """*checkpointer* answers about checkpoints. *relays* tells through which the devices reach each
        other."""
        self._local = local
        self._fs = local.fs
        self._sharing = local.sharing
        self._ring = local.ring
        self._signals = local.signals
        self._settings = settings
        self._links = links
        self._following = following
        self._checkpointer = checkpointer
        self._relays = relays
        self._lock = threading.Lock()
        self._service: PeerService | None = None
        self._linked: set[bytes] = set()
        self._closed = False
        self.alarm: str | None = None

    def open(self) -> None:
        """Let there be links from now on."""
        with self._fs.state.transaction() as tx:
            tx.updates.grew.listen(self._links.advanced)
        self._sharing.members_changed.listen(self.members_changed)
        self._following.looked_after.listen(self._look_after)
        self.members_changed()

    def members_changed(self) -> None:
        """Open the port once there is another member, and let links be with members only."""
        members = self._sharing.current_members()
        with self._lock:
            if self._closed or len(members) < 2 or not self._sharing.begun.is_set():
                return
            if self._service is None:
                self._service = self._start()
                self._links.are_of(self._service)
            else:
                self._service.set_members(members)
        self._links_changed()
        self.look_at_relays()

    def look_at_relays(self) -> None:
        """The clouds of the volume, or the secrets of this device, may have changed."""
        relays = self._relays()
        with self._lock:
            if self._service is not None:
                self._service.set_relays(relays)

    def _start(self) -> PeerService | None:
        # What they need takes long to import, and a volume of one device needs none of it.
        from hybrisfs.peers.service import PeerService
        from hybrisfs.peers.tls import PeerIdentity

        # Of the first epoch, so that devices find each other that have not heard of the same epochs. It
        # proves nothing: links are with the keys of members.
        secret = blake3(_SECRET, key=self._ring.keys.first.metadata).digest()
        identity = PeerIdentity(self._sharing.volume, self._ring.keys.device, secret)
        callbacks = PeerCallbacks(
            new_exchange=lambda device: _DurableExchange(self._local, self._checkpointer),
            receive_updates=self._receive,
            receive_beacon=self._hear,
            raise_alarm=self._raise_alarm,
            read_chunk=self._read_chunk,
            verify_chunk=lambda identity, data: self._fs.state.namer.chunk_id(data) == identity,
            links_changed=self._links_changed,
        )
        members, environment = self._sharing.current_members(), self._signals.environment
        service = PeerService(identity, members, callbacks, self._settings, environment=environment)
        try:
            service.start()
        except HybrisError as error:
            log.warning("no direct links to other machines: %s", error)
            return None
        return service

    def close(self) -> None:
        """End all links."""
        with self._lock:
            self._closed = True
            service, self._service = self._service, None
            self._links.are_of(None)
        if service is not None:
            service.close()

    # -- what links ask --------------------------------------------------------------------------

    def _receive(self, device: bytes, updates: tuple[bytes, ...]) -> None:
        if not self._sharing.receive(updates):
            self._following.look_now()

    def _hear(self, device: bytes, data: bytes) -> None:
        """A linked device says where it stands: if that is known here, it is known to be up to date."""
        public = self._sharing.current_members().public_key(device)
        if public is None:
            return
        try:
            head = decode_head(data, self._sharing.volume, public, self._ring.segments)
        except UnknownEpochError:
            return  # its key comes with the log
        except NewerFormatError as error:
            log.warning("upgrade HybrisFS, machine %s has a newer version: %s", device.hex(), error)
            return
        except DecodeError as error:
            log.warning("machine %s sent a head that makes no sense: %s", device.hex(), error)
            return
        self._following.heard(device, head)
        self._links.hear(device, head)

    def _raise_alarm(self, device: bytes, reason: str) -> None:
        log.error("exchange with machine %s: %s", device.hex(), reason)
        self.alarm = reason

    def _read_chunk(self, identity: bytes) -> bytes | None:
        with self._fs.state.transaction() as tx:
            ref = tx.chunks.find(identity)
            if ref is None:
                return self._checkpointer.cloud_checkpoint.part(identity)
            try:
                return tx.chunks.read_whole(ref)
            except OSError:
                return None  # damaged here; the asking device goes on elsewhere

    def _links_changed(self) -> None:
        linked = self._links.linked()
        before, self._linked = self._linked, linked
        if before - linked:  # what it has not sent any more comes through the clouds
            self._following.look_now()
        self._signals.brisk = bool(linked)
        self._signals.awaited = len(self._sharing.current_members()) > len(linked) + 1

    def _look_after(self) -> None:
        """Look for devices that are not linked: an announcement may have been lost while a cable was out."""
        self.look_at_relays()
        if self._signals.awaited:
            self.members_changed()


class _DurableExchange:
    """The exchange over one link. What it sends is durable here before it goes: a device that forgot an
    update which others know would write another one in its place."""

    def __init__(self, local: LocalParts, checkpointer: Checkpointer) -> None:
        self._fs = local.fs
        self._committer = local.committer
        self._checkpointer = checkpointer
        self._agreement = local.sharing.agreement
        with local.fs.state.transaction() as tx:
            self._exchange = Exchange(tx.updates, self._state_hash, checkpointer.root)

    def _state_hash(self) -> bytes | None:
        with self._fs.state.transaction() as tx:
            return self._agreement.current(tx)

    def begin(self) -> Sequence[bytes]:
        return self._durably(self._exchange.begin)

    def advanced(self) -> Sequence[bytes]:
        return self._durably(self._exchange.advanced)

    def receive(self, message: bytes) -> Sequence[Action]:
        with self._fs.state.transaction():
            actions = self._exchange.receive(message)
        if any(isinstance(action, Send) for action in actions):
            self._commit()
        for action in actions:
            if isinstance(action, Offer):
                self._checkpointer.intake.offered(action.root)
        return [action for action in actions if not isinstance(action, Offer)]

    def _durably(self, act: Callable[[], list[bytes]]) -> list[bytes]:
        with self._fs.state.transaction():
            messages = act()
        if messages:
            self._commit()
        return messages

    def _commit(self) -> None:
        with self._fs.state.transaction() as tx:
            is_uncommitted = self._fs.is_uncommitted(tx)
        if is_uncommitted:
            self._committer.commit_now()


_SCHEME: Final = "relay://"


def relays_of(config: VolumeConfig, credentials: Credentials) -> list[Relay]:
    """The relays that are clouds of the volume, and those that the user has named: the ones whose tokens are
    on this device, each once."""
    urls = [one.url for one in config.clouds if one.url.startswith(_SCHEME)]
    found = [_relay(url, credentials) for url in dict.fromkeys([*urls, *config.links.relays])]
    return [one for one in found if one is not None]


def _relay(url: str, credentials: Credentials) -> Relay | None:
    from backends.relay import RelayStore, pin_of, port_of  # only volumes that have one need it

    try:
        address = RelayStore.kind.parse(url)
        token = credentials.lookup(url).get("token")
    except StoreError as error:
        log.info("no links through a relay: %s", error)
        return None
    if not token:
        return None
    return Relay((address.host, port_of(address)), pin_of(address), address.path, token)
