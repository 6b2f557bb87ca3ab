"""The stages in which a volume opens. Each takes the records of earlier ones, and makes one.

ground (local parts, settings, keys) -> clouds -> reading -> receiving -> writing -> upkeep -> control
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec import Struct

from backends.credentials import CredentialStore
from hybrisfs.admit.create import JOURNAL_FOLDER, KEYS_FILE
from hybrisfs.admit.kits import Kits
from hybrisfs.clouds.agreed_clouds import open_engine
from hybrisfs.clouds.checkpoints import Checkpoints
from hybrisfs.clouds.checkup import Checkup, RecentPuts
from hybrisfs.clouds.cloud_set import CloudSet
from hybrisfs.clouds.control import CloudControl
from hybrisfs.clouds.maintenance import Maintenance
from hybrisfs.clouds.objects import CloudObjects
from hybrisfs.clouds.patrol import Patrol
from hybrisfs.dispersal.engine import Marker
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.errors import UsageError
from hybrisfs.exchange.following import Following
from hybrisfs.exchange.peering import Peering, relays_of
from hybrisfs.gc.archive import Archive
from hybrisfs.gc.collector import Collector
from hybrisfs.gc.find import Pages
from hybrisfs.home import Home
from hybrisfs.keyring import KeyRing
from hybrisfs.keys import VolumeKeys
from hybrisfs.kinds import SERVICE
from hybrisfs.kv.cloud_store import CloudStores
from hybrisfs.kv.log_store import LogStore
from hybrisfs.kv.opening import KeyValues
from hybrisfs.kv.shared import Owner, SharedStores
from hybrisfs.local_parts import open_local_parts
from hybrisfs.merge.kv_services import MAX_SERVICE_URL, ServiceRecord, read_services, service_key
from hybrisfs.parcels.parcels import Parcels
from hybrisfs.parts import (
    Clouds,
    Ground,
    HeadSources,
    Publishing,
    Reading,
    Writing,
    open_publishing,
    open_shipping,
)
from hybrisfs.peers.settings import Relay
from hybrisfs.settings.settings import Settings
from hybrisfs.settings.transfers import Transfers, is_metered
from hybrisfs.sharing.sharing import AwaitedLog
from hybrisfs.state.database import Database
from hybrisfs.state.journal import Journal
from hybrisfs.stores.own_places import MARKER_NAME, OwnPlaces, marker
from hybrisfs.verify.fsck import Fsck
from hybrisfs.versions.thinning import Thinner
from hybrisfs.volume.agreed import Agreed
from hybrisfs.volume.content_ids import ContentIds
from hybrisfs.volume.copying import Copying
from hybrisfs.volume.decisions import Conflicts, Unreadable
from hybrisfs.volume.examiner import Examiner
from hybrisfs.volume.files import Browsing, Labelling, Pinning
from hybrisfs.volume.ignoring import Ignoring
from hybrisfs.volume.merging import Merging
from hybrisfs.volume.mirrors import Mirrors
from hybrisfs.volume.mounting import Mounting
from hybrisfs.volume.unasked import Unasked
from hybrisfs.volume.versions import Versions
from hybrisfs.write.chunk import Chunker
from hybrisfs.write.grants import Grants
from hybrisfs.write.pack import PackMaker
from hybrisfs.write.relayer import Shipping

__all__ = [
    "Control",
    "Receiving",
    "Upkeep",
    "open_clouds",
    "open_control",
    "open_ground",
    "open_receiving",
    "open_upkeep",
    "open_writing",
]


def open_ground(
    home: Home, settings: Settings, keys: VolumeKeys, database: Database, mounting: Mounting
) -> Ground:
    config, environment = settings.config, database.environment
    folder = home.volume_state(config.name)
    ring = KeyRing(keys, path=folder / KEYS_FILE, environment=environment)
    sealer = Sealer(ring.chunks, keys.dedup)
    local = open_local_parts(
        database,
        Journal(folder / JOURNAL_FOLDER, environment, budget=config.cache_bytes),
        sealer,
        ring,
        (os.getuid(), os.getgid()),
        AwaitedLog(folder, environment),
        config.deletion_share,
        mounting.upcoming,
    )
    fs, signals = local.fs, local.signals
    fs.shown.listen(lambda changes: signals.content_wanted())
    fs.shown.listen(mounting.notify)
    local.sharing.adopt(config)
    tables = TableSealer(ring.tables)
    return Ground(ring, signals, fs, local.sharing, local.committer, home, settings, folder, sealer, tables)


def open_clouds(ground: Ground) -> Clouds:
    config, ring, sharing = ground.config, ground.ring, ground.sharing
    environment = ground.fs.environment
    credentials = CredentialStore(ground.home.credentials)
    places = OwnPlaces(ground.home, environment)
    engine = open_engine(config, credentials, ground.sealer, ground.tables, places, environment)
    redundancy = Redundancy(config.f, config.k)
    keys = ring.keys
    owner = Owner(config.id, keys.device.device_id, keys.first.values, ring.values)
    services = _ValueServices(ground)
    shared = SharedStores(ground.folder, engine, owner, services, credentials, redundancy, sharing)
    on_clouds = CloudStores(engine, owner, services, sharing)
    shipping = Shipping(ground.fs, ground.signals)
    in_log = LogStore(ground.fs, sharing.signer, ground.committer, ground.signals, shipping)
    key_values = KeyValues(ground.folder, engine, keys, redundancy, shared, on_clouds, in_log, sharing)
    transfers = Transfers(
        config.transfers,
        engine.throttle,
        ground.signals,
        ground.settings,
        is_metered,
    )
    transfers.look()
    return Clouds(
        ground,
        engine,
        Marker(MARKER_NAME, marker(config.id)),
        PackMaker(ground.sealer, ground.tables, redundancy, engine),
        Grants(ring, config.id, sharing, engine),
        key_values,
        transfers,
    )


class _ValueServices:
    """Of one volume, as its log tells: see `hybrisfs.kv.shared.Services`. Thread-safe."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._sharing = ground.sharing

    def urls(self) -> Sequence[str]:
        """The URLs of the services in use, sorted."""
        with self._ground.fs.state.transaction() as tx:
            return read_services(tx.registers.with_prefix(SERVICE.prefix))

    def add(self, url: str) -> None:
        """Have all devices use one more."""
        if len(url.encode()) > MAX_SERVICE_URL or not url.isprintable():
            raise UsageError("the URL of the service is too long", f"it has at most {MAX_SERVICE_URL} bytes")
        self._sign(ServiceRecord(url))

    def forget(self, url: str) -> None:
        """Sign for all devices that a service is not used any more. Raises UsageError."""
        if url not in self.urls():
            raise UsageError(
                f"the volume uses no service {url!r}", "", "hybrisfs kv containers --json lists those in use."
            )
        self._sign(ServiceRecord(url, in_use=False))

    def _sign(self, record: ServiceRecord) -> None:
        self._sharing.require_writer()
        state = self._ground.fs.state
        with state.log_transaction() as tx:
            self._sharing.signer.sign(tx, [(service_key(record.url), record.encode())], 0)
        self._ground.committer.commit_now()  # the command reports that it is done
        self._ground.signals.chunks_made()


class Receiving(Struct, frozen=True):
    """The way of what other devices sign to this one."""

    following: Following
    checkpoints: Checkpoints
    peering: Peering


def open_receiving(clouds: Clouds, reading: Reading) -> Receiving:
    ground, links = clouds.ground, reading.links
    following = Following(ground, clouds.engine, clouds.grants)
    following.seen.listen(reading.copies.hear)
    checkpoints = Checkpoints(ground, clouds, links, following)
    credentials = CredentialStore(ground.home.credentials)

    def relays() -> Sequence[Relay]:
        return relays_of(ground.config, credentials)

    peering = Peering(ground, ground.config.links, links, following, checkpoints.checkpointer, relays)
    return Receiving(following, checkpoints, peering)


def open_writing(clouds: Clouds, reading: Reading, receiving: Receiving) -> tuple[Publishing, Writing]:
    """Of what programs change, into the log and to the clouds; and of the log, to the clouds."""
    ground, fetcher, following = clouds.ground, reading.fetcher, receiving.following
    uploaders = partial(ThreadPoolExecutor, thread_name_prefix="upload")
    publishing = open_publishing(ground, Chunker(ground.fs, fetcher), fetcher, clouds.packs, uploaders)
    checkpointer = receiving.checkpoints.checkpointer
    source = HeadSources(following.puller, checkpointer, ground.sharing.agreement, reading.copies)
    shipping = open_shipping(ground, fetcher, reading.links, clouds, following.puller, source)
    return publishing, Writing(shipping.relayer, shipping.uploads, shipping.shipper, clouds, following)


class Upkeep(Struct, frozen=True):
    """What is done now and then to what is on the clouds, and kept of versions."""

    maintenance: Maintenance
    patrol: Patrol
    checkup: Checkup
    thinner: Thinner
    versions: Versions
    unreadable: Unreadable
    archive: Archive
    collector: Collector


def open_upkeep(reading: Reading, receiving: Receiving, writing: Writing, mounting: Mounting) -> Upkeep:
    clouds, fetcher = writing.clouds, reading.fetcher
    ground = clouds.ground
    fs, sharing, config = ground.fs, ground.sharing, ground.config
    objects = CloudObjects(writing, fetcher, receiving.checkpoints.expected)
    maintenance = Maintenance(objects, writing)
    recent = RecentPuts(fs, objects.expected, objects.upkeep, sharing.device, fs.environment)
    patrol = Patrol(fs.state, fs.environment, config.check_days)
    checkup = Checkup(fs, clouds.engine, clouds.marker, ground.signals, recent, maintenance, patrol)
    checkup.minute.listen(receiving.following.look_after)
    thinner = Thinner(fs, config.keep_versions, Pages(fs, fetcher))
    versions = Versions(fs, ground.committer, fetcher, thinner, writing.uploads, config.name)
    unreadable = Unreadable(ground, versions, mounting)
    fetcher.unavailable.listen(unreadable.note)
    archive = Archive(fs, ground.settings, ground.home.prices)
    collector = Collector(ground, fetcher, writing, thinner, objects, archive)
    return Upkeep(maintenance, patrol, checkup, thinner, versions, unreadable, archive, collector)


class Control(Struct, frozen=True):
    """What people ask of a volume."""

    kits: Kits
    cloud_set: CloudSet
    clouds: CloudControl
    fsck: Fsck
    mirrors: Mirrors
    content: Pinning
    copies: Copying
    labels: Labelling
    ignoring: Ignoring
    agreed: Agreed
    browsing: Browsing
    conflicts: Conflicts
    merging: Merging
    unasked: Unasked
    parcels: Parcels
    examiner: Examiner
    content_ids: ContentIds


def open_control(
    reading: Reading, receiving: Receiving, writing: Writing, upkeep: Upkeep, mounting: Mounting
) -> Control:
    clouds, maintenance = writing.clouds, upkeep.maintenance
    ground = clouds.ground
    fs, committer = ground.fs, ground.committer
    kits = Kits(ground, receiving.following, clouds.engine, writing.uploads)
    cloud_set = CloudSet(
        clouds, maintenance, writing, receiving.checkpoints, kits, reading.fetcher, upkeep.archive
    )
    cloud_set.arranged.listen(receiving.peering.look_at_relays)
    upkeep.checkup.minute.listen(cloud_set.look_after)
    conflicts = Conflicts(fs)
    browsing = Browsing(fs, reading.fetcher, reading.residency)
    parcels = Parcels(clouds, browsing.contents)
    merging = Merging(fs, conflicts, reading.fetcher, writing.uploads, reading.room)
    upkeep.checkup.minute.listen(parcels.look_after)
    return Control(
        kits,
        cloud_set,
        CloudControl(clouds, cloud_set, maintenance, writing, upkeep.patrol),
        Fsck(writing, maintenance, upkeep.collector, cloud_set),
        Mirrors(ground, reading, mounting),
        Pinning(fs, committer, reading.pinner, reading.room, ground.signals, mounting),
        Copying(fs, committer, reading.copies, ground.signals, mounting, reading.residency),
        Labelling(fs, committer, mounting),
        Ignoring(ground),
        Agreed(fs, committer, ground.settings),
        browsing,
        conflicts,
        merging,
        Unasked(fs, merging),
        parcels,
        Examiner(fs, ground.sharing.deletions, reading.fetcher),
        ContentIds(fs, committer, reading.fetcher),
    )
