"""The set of a volume's clouds: it changes, and the objects on the clouds move, in the background.

The registers of `merge.cloud_records` say what is wanted. This brings the configuration and the running
engine up to date with them, and drains clouds that are to go. The device that said so does most of that; each
device moves its own log, and the packs that it put onto a cloud before it heard that the cloud goes.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from backends.credentials import CredentialStore
from hybrisfs.admit.kits import Kits
from hybrisfs.clouds.agreed_clouds import agreed_config, open_cloud
from hybrisfs.clouds.checkpoints import Checkpoints
from hybrisfs.clouds.drain import Drain, held_by_cloud
from hybrisfs.clouds.maintenance import Maintenance
from hybrisfs.clouds.redundancy import Recoder, Rewriting, ValueKeeping
from hybrisfs.clouds.signpost import Signposts
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.errors import HybrisError
from hybrisfs.gc.archive import Archive
from hybrisfs.merge.cloud_records import (
    CloudRecord,
    CloudState,
    RedundancyRecord,
    entries_of,
    free_number,
    overruled,
    read_clouds,
    read_redundancy,
)
from hybrisfs.parts import Clouds, Writing
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.values import Stamp
from hybrisfs.settings.config import MAX_CLOUDS, CloudConfig, VolumeConfig
from hybrisfs.stages import Pause, Wake
from hybrisfs.state.state import Transaction
from hybrisfs.stores.cloud_names import unique_name
from hybrisfs.stores.own_places import OwnPlaces
from hybrisfs.topic import Topic

__all__ = ["CloudSet", "Job"]

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 600.0
_FIRST_PAUSE: Final = 2.0
_LAST_PAUSE: Final = 300.0
_SHIP_SECONDS: Final = 300.0
_UNINFORMED: Final = "this machine cannot read what the others say now"
_SAMPLE: Final = 3  # sentences shown of what went wrong


class Job(Struct, frozen=True):
    """The progress of a cloud that is being emptied, and the trouble that keeps it back."""

    number: int
    name: str
    done: int
    total: int
    trouble: str


def _driver(cloud: CloudConfig) -> tuple[str, bool]:
    """What the driver of a cloud is made from."""
    return cloud.url, cloud.heard


class CloudSet:
    """A stage, and what is known of the clouds. Methods may be called from any thread."""

    def __init__(
        self,
        clouds: Clouds,
        maintenance: Maintenance,
        writing: Writing,
        checkpoints: Checkpoints,
        kits: Kits,
        fetcher: Fetcher,
        archive: Archive,
    ) -> None:
        self._ground = ground = clouds.ground
        self._sharing = sharing = ground.sharing
        self._clouds = clouds
        self._engine = clouds.engine
        self._maintenance = maintenance
        self._writing = writing
        self._uploads = writing.uploads
        self._checkpoints = checkpoints
        self._kits = kits
        self.credentials = CredentialStore(ground.home.credentials)
        self.places = OwnPlaces(ground.home, ground.fs.environment)
        self._upkeep = clouds.engine.upkeep
        self._drain = Drain(
            ground.fs,
            self._sharing.device,
            self._upkeep,
            maintenance.objects.packs,
            maintenance.objects.segments,
        )
        self._wanted = True
        self._pause = _IDLE_SECONDS
        self._arranging = threading.Lock()
        self._heard: Mapping[int, CloudRecord] = {}  # by signposts
        self._read_only: dict[int, CloudConfig] = {}  # those of them that no register tells of
        self._totals: dict[int, int] = {}
        self._troubles: dict[int, str] = {}
        self.arranged = Topic[[]]()
        """The clouds are others than before."""
        self._signposts = Signposts(ground, clouds.engine)
        self.rewriting = self._rewriting(fetcher, archive)
        self.values = ValueKeeping(clouds.key_values)
        sharing.arrivals.clouds_changed.listen(self.changed)
        sharing.members_changed.listen(self.changed)  # recovery kits tell who the members are
        self.arrange()

    # -- from any thread -------------------------------------------------------------------------

    def changed(self) -> None:
        """The set of clouds may be another one."""
        self._wanted = True
        self._ground.signals.wake(Wake.CLOUDS)

    def look_after(self) -> None:
        """What is to be done now and then."""
        if self._kits.is_overdue:
            self._ground.signals.wake(Wake.CLOUDS)

    def records(self) -> tuple[dict[int, tuple[CloudRecord, Stamp]], RedundancyRecord]:
        """All present and former clouds, and f and k; as configured here while no register names them."""
        config = self._ground.config
        with self._ground.fs.state.transaction() as tx:
            clouds, agreed = read_clouds(tx.registers), read_redundancy(tx.registers)
        if not clouds:
            nobody = Stamp(0, b"")
            clouds = {one.number: (CloudRecord(one.name, one.url), nobody) for one in config.clouds}
        return clouds, agreed[0] if agreed is not None else RedundancyRecord(config.f, config.k)

    def sign(self, changes: Mapping[int, CloudRecord], redundancy: RedundancyRecord | None = None) -> None:
        """Sign *changes* for all devices; the first change also names all present clouds."""
        with self._ground.fs.state.log_transaction() as tx:
            self._sign(tx, changes, redundancy)
        self._announce_change()

    def sign_new(self, record: CloudRecord) -> int:
        """Sign one more cloud for all devices. Returns its number. Raises UsageError."""
        with self._ground.fs.state.log_transaction() as tx:
            number = free_number(self._ground.config.id, record.url, self.records()[0])
            self._sign(tx, {number: record}, None)
        self._announce_change()
        return number

    def _announce_change(self) -> None:
        self._ground.committer.commit_now()  # the command reports that it is done
        self._ground.signals.chunks_made()
        self.changed()

    def _sign(
        self, tx: Transaction, changes: Mapping[int, CloudRecord], redundancy: RedundancyRecord | None
    ) -> None:
        sharing = self._sharing
        before, code = self.records()
        if read_clouds(tx.registers):
            entries = entries_of(changes, redundancy)
        else:
            known = {number: record for number, (record, _) in before.items()}
            entries = entries_of({**known, **changes}, redundancy or code)
        sharing.signer.sign(tx, entries, 0)

    def prove(self, number: int, *, typed: bool = False) -> None:
        """This device has seen, or put, the volume's marker there. *typed*: a person here named the URL."""

        def prove(config: VolumeConfig) -> VolumeConfig:
            clouds = (
                replace(one, proven=True, heard=one.heard and not typed) if one.number == number else one
                for one in config.clouds
            )
            return replace(config, clouds=tuple(clouds))

        with self._arranging:
            self._use(prove, self.records()[0])

    def jobs(self) -> list[Job]:
        """The clouds that are being emptied."""
        found = []
        for number, (record, _) in self.records()[0].items():
            if record.state in (CloudState.DRAINING, CloudState.LOST):
                with self._ground.fs.state.transaction() as tx:
                    left = self._count_at(tx, number)
                total = max(self._totals.get(number, left), left)
                trouble = self._troubles.get(number, "")
                found.append(Job(number, record.name, total - left, total, trouble))
        return found

    def held(self) -> tuple[Counter[int], Counter[int]]:
        """See `held_by_cloud`; does not keep programs waiting."""
        with self._ground.fs.committed(lambda tx: None) as (_, database):
            return held_by_cloud(database)

    # -- configuration and engine ----------------------------------------------------------------

    def arrange(self) -> None:
        """Bring the configuration and the engine up to date with the registers."""
        with self._arranging:
            with self._ground.fs.state.transaction() as tx:
                told = {n: record for n, (record, _) in read_clouds(tx.registers).items()}
                agreed = read_redundancy(tx.registers)
                gone = [n for n, record in told.items() if record.state is CloudState.GONE]
                # The device that let it go has seen that no shared store names it.
                named = {n for n in gone if self._count_at(tx, n, unknown=0)}
            redundancy = agreed[0] if agreed is not None else None
            self._use(lambda config: agreed_config(config, told, redundancy, named), told)

    def _only_heard_of(self, config: VolumeConfig, told: Container[int]) -> dict[int, CloudConfig]:
        """The clouds that only signposts name. They are read, because updates may be there, but not written
        to and not kept in the configuration."""
        known = {one.number for one in config.clouds}
        names = [one.name for one in config.clouds]
        found: dict[int, CloudConfig] = {}
        for number, record in sorted(self._heard.items()):
            heard = record.state in (CloudState.ACTIVE, CloudState.DRAINING)
            if heard and number not in known and number not in told and len(known) + len(found) < MAX_CLOUDS:
                name = unique_name(record.name, names)
                names.append(name)
                found[number] = CloudConfig(
                    number,
                    name,
                    record.url,
                    draining=True,
                    proven=False,
                    heard=True,
                )
        return found

    def _use(self, change: Callable[[VolumeConfig], VolumeConfig], told: Container[int]) -> None:
        engine = self._engine
        if change(self._ground.config) != self._ground.config:
            self._ground.committer.commit_now()  # the file must not tell of what a crash takes back
        former, config = self._ground.settings.change(change)
        before = {one.number: one for one in former.clouds} | self._read_only
        self._read_only = self._only_heard_of(config, told)
        after = {one.number: one for one in config.clouds} | self._read_only
        if before != after:
            moved = {n for n in before.keys() & after.keys() if _driver(before[n]) != _driver(after[n])}
            for number in (before.keys() - after.keys()) | moved:
                engine.clouds.retire(number)
            for number in (after.keys() - before.keys()) | moved:
                engine.add_cloud(open_cloud(after[number], self.credentials, self.places))
            for number, cloud in after.items():
                engine.clouds.rename(number, cloud.name)
            self._clouds.grants.again()
            self.arranged()
            log.info("volume %s: %d clouds, f=%d, k=%d", self._ground.name, len(after), config.f, config.k)
        closed = [one.number for one in config.clouds if not one.in_use]
        engine.arrange(closed, config.f, self._read_only)
        self._clouds.packs.redundancy = Redundancy(config.f, config.k)
        self._clouds.key_values.use(self._clouds.packs.redundancy)
        self._maintenance.objects.use(
            {one.number: one.name for one in config.clouds if one.in_use}, self.names()
        )
        self._ground.signals.look_around()

    def names(self) -> dict[int, str]:
        """The names of all present and former clouds."""
        return {number: record.name for number, (record, _) in self.records()[0].items()}

    def _count_at(self, tx: Transaction, number: int, *, unknown: int = 1) -> int:
        """How many objects a cloud should hold; *unknown*: see `KeyValues.held`."""
        return self._drain.count_at(tx, number) + self._clouds.key_values.held(number, unknown)

    # -- the stage ------------------------------------------------------------------------------

    def step(self) -> Pause:
        """Do what is due; failed work is tried again after growing pauses."""
        news, self._wanted = self._wanted, False
        try:
            trouble = self._round(closely=news)
        except (HybrisError, OSError) as error:
            log.warning("volume %s: the clouds: %s", self._ground.name, error)
            trouble = True
        if not trouble:
            self._pause = _IDLE_SECONDS
        elif news or self._pause >= _IDLE_SECONDS or self._ground.signals.transfers_paused:
            self._pause = _FIRST_PAUSE
        else:
            self._pause = min(self._pause * 2, _LAST_PAUSE)
        return Pause(self._pause)

    def _go_on(self) -> bool:
        signals = self._ground.signals
        return not (self._wanted or signals.stopping or signals.transfers_paused)

    def _round(self, *, closely: bool) -> bool:
        """Do what is due; True when something is left to be tried again soon. *closely*: the set of clouds
        may be another one."""
        self._heard = self._signposts.read(closely=closely)
        self._renumber_overruled()
        self.arrange()
        unproven = self._prove_all()
        if self._writing.following.is_informed():  # else it would replace those that it cannot read
            self._signposts.post()
        renewed = self._kits.refresh()
        records, code = self.records()
        leaving = [n for n, (record, _) in records.items() if record.state is not CloudState.ACTIVE]
        own = self._drain.branches()
        rewritten = self._rewrite([n for n in leaving if records[n][1].branch in own])
        left = [n for n in leaving if self._go_on() and not self._empty(n, *records[n], code)]
        self.arrange()  # no record may place anything on a cloud that has gone
        return unproven or bool(left) or not rewritten or not renewed

    def _rewrite(self, leaving: Collection[int]) -> bool:
        """Rewrite what was written with another f or k, or has more shares than there are clouds besides the
        *leaving* ones, which this device lets go; False when something is left."""
        with self._ground.fs.state.transaction() as tx:
            agreed = read_redundancy(tx.registers)
        if agreed is None:
            return True
        own, code = self._drain.branches(), self._clouds.packs.redundancy
        everything = agreed[1].branch in own
        packs = self.rewriting.run(code, own, self._go_on, everything=everything, leaving=leaving)
        return self.values.rewrite(code, self._go_on) and packs

    def _rewriting(self, fetcher: Fetcher, archive: Archive) -> Rewriting:
        fs, signals, packs = self._ground.fs, self._ground.signals, self._clouds.packs
        recoder = Recoder(fs, self._sharing.signer, signals, packs, fetcher, archive)
        return Rewriting(fs, recoder, self._maintenance.objects.segments, self._engine, archive)

    def _renumber_overruled(self) -> None:
        """Give a new number to a cloud that was added here under a number that another device gave to another
        cloud at the same moment. What was put there is recorded under the new number."""
        with self._ground.fs.state.transaction() as tx:
            lost = overruled(tx.registers, self._drain.branches())
        for number, record in lost.items():
            records = {one: known for one, (known, _) in self.records()[0].items()}
            again = next((one for one, known in records.items() if known.url == record.url), None)
            if again is None:
                again = self.sign_new(record)
            self.arrange()
            self.prove(again)
            self._drain.renumber(number, again)
            self.sign({number: records[number]})

    def _prove_all(self) -> bool:
        """Look for the marker on clouds that others have added; True when some is not there."""
        unproven = [one.number for one in self._ground.config.clouds if not one.proven]
        for number in unproven:
            finding, _ = self._maintenance.objects.expected.look_at_marker(number)
            if finding is None:
                self.prove(number)
                self._writing.announce()
        return any(not one.proven for one in self._ground.config.clouds)

    def _empty(self, number: int, record: CloudRecord, stamp: Stamp, code: RedundancyRecord) -> bool:
        """Empty a cloud that is to go, as far as that is the work of this device; False when something is
        left."""
        mine = stamp.branch in self._drain.branches()
        ask = record.state is not CloudState.LOST
        with self._ground.fs.state.transaction() as tx:
            left = self._count_at(tx, number)
        self._totals[number] = max(self._totals.get(number, 0), left)
        writable = self._engine.in_use
        leaves = mine and record.state is not CloudState.GONE
        troubles: list[str] = []
        if (left or leaves) and not self._writing.following.is_informed():
            troubles = [_UNINFORMED]
        elif left or leaves:
            troubles = self._drain.move(number, writable, self._go_on, ask=ask, everything=mine)
            troubles += self.values.move(number, self._go_on) if self._go_on() else []
        if leaves and not troubles and self._go_on():
            troubles = self._finish(number, record, code)
        if troubles:
            more = f" (and {len(troubles) - _SAMPLE} more)" if len(troubles) > _SAMPLE else ""
            self._troubles[number] = "; ".join(troubles[:_SAMPLE]) + more
            log.warning("cloud %s cannot go yet: %s", record.name, self._troubles[number])
        else:
            self._troubles.pop(number, None)
        return not troubles and not (leaves and self._state(number) is not CloudState.GONE)

    def _state(self, number: int) -> CloudState:
        return self.records()[0][number][0].state

    def _finish(self, number: int, record: CloudRecord, code: RedundancyRecord) -> list[str]:
        """Let an empty cloud go; why it cannot, in sentences."""
        active = [one for one, _ in self.records()[0].values() if one.state is CloudState.ACTIVE]
        if len(active) < 2 * code.f + code.k:
            return [f"only {len(active)} clouds would be left, {2 * code.f + code.k} are needed: add one"]
        secured: set[str] = set()
        if record.state is CloudState.DRAINING:
            writable = self._engine.in_use
            secured, troubles = self._drain.secure_log(number, writable, code.f + code.k, writable)
            if troubles:
                return [*troubles, f"if {record.name} does not come back, run hybrisfs cloud remove"]
        # What was on its way there when the cloud was closed to writes is recorded after that, too.
        if not self._uploads.wait(_SHIP_SECONDS, lambda done, total: None):
            return ["the clouds have not taken the word of where everything is now"]
        trouble = self._checkpoints.secure() or self.values.trouble_at(
            number, is_lost=record.state is CloudState.LOST
        )
        if trouble is not None:
            return [trouble]
        with self._ground.fs.state.transaction() as tx:
            left = self._count_at(tx, number)
        if left:
            return []
        if record.state is CloudState.DRAINING:
            trouble = self._drain.clear(number, secured) or self.values.clear(number)
            if trouble is not None:
                return [trouble, f"if {record.name} does not come back, run hybrisfs cloud remove"]
        with self._ground.fs.state.transaction() as tx:
            left = self._count_at(tx, number)
        if left or self._state(number) is not record.state:
            return []  # another device has put something there; it is moved next
        self.sign({number: replace(record, state=CloudState.GONE)})
        self._signposts.post(also=number if record.state is CloudState.DRAINING else None)
        log.info("volume %s: nothing is on the cloud %s any more", self._ground.name, record.name)
        return []
