"""The checkpoints of an open volume: the stage, and what it needs of clouds, links and other devices."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, cast

from hybrisfs.api.status import Checkpoint as CheckpointStatus
from hybrisfs.checkpoint.deposit import NotToBeHadError
from hybrisfs.checkpoint.local_snapshots import LocalSnapshots
from hybrisfs.clouds.objects import ExpectedCheckpoint
from hybrisfs.dispersal.errors import CloudsUnavailable, Finding
from hybrisfs.exchange.following import Following
from hybrisfs.exchange.peering import Links
from hybrisfs.parts import Clouds, Ground, open_checkpointing
from hybrisfs.stages import Pause
from sync import CheckpointId, DecodeError, Head, Members, decode_head, head_name

__all__ = ["Checkpoints"]

log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 1 << 16
_FOLDER: Final = "checkpoints"


class Checkpoints:
    """A stage. Its methods may be called from any thread."""

    def __init__(
        self,
        ground: Ground,
        clouds: Clouds,
        links: Links,
        following: Following,
    ) -> None:
        fs = ground.fs
        self._fs = fs
        self._sharing = sharing = ground.sharing
        self._following = following
        self._monotonic = ground.fs.environment.monotonic
        self._ring = ground.ring
        self._signals = ground.signals
        self._engine = clouds.engine
        self._guard = threading.Lock()
        self._looks = False  # from the second step on
        self._heard: dict[bytes, Head] = {}  # by links, the newest of each device
        snapshots = LocalSnapshots(ground.folder / _FOLDER, ground.sealer, fs.environment)
        parts = open_checkpointing(ground, snapshots, _Store(clouds), clouds.engine, links)
        self._fetching, self._compactor = parts.fetching, parts.compactor
        self.checkpointer: Final = parts.checkpointer
        self.checkpointer.news.listen(ground.signals.announce)
        links.heard.listen(self._hear)
        self.expected = ExpectedCheckpoint(parts.checkpointer.cloud_checkpoint, parts.depositor)
        with fs.state.transaction() as tx:
            self._inviter: bytes = tx.meta("inviter")
            if self._inviter and not len(tx.updates.state.vector):
                sharing.begun.clear()

    def _hear(self, head: Head) -> None:
        """A linked device has told its head."""
        with self._guard:
            known = self._heard.get(head.writer)
            if known is None or known.serial <= head.serial:
                self._heard[head.writer] = head

    def heads(self) -> Mapping[bytes, Head]:
        """The newest head of each device, from clouds and links; none of devices that now say something that
        cannot be read here. A device that was removed without hearing of it would else let go, on their
        earlier word, of what they have put in its place."""
        puller = self._following.puller
        newest, unread = dict(puller.heads()), puller.unread()
        with self._guard:
            for device, head in self._heard.items():
                known = newest.get(device)
                if known is None or known.serial <= head.serial:
                    newest[device] = head
        return {device: head for device, head in newest.items() if device not in unread}

    def facts(self) -> CheckpointStatus:
        """What `status` shows."""
        waiting = self.checkpointer.waits_for(self.heads())
        with self._fs.state.transaction() as tx:
            names = [tx.members.name_of(device) for device in waiting]
            log = self._compactor.facts(tx)
        return CheckpointStatus(self.checkpointer.is_current(), sorted(names), log)

    def secure(self) -> str | None:
        """Bring the newest checkpoint to as many of the clouds in use as it should be on. Returns why that
        failed, None when it is done."""
        try:
            self.checkpointer.cloud_checkpoint.secure()
        except (CloudsUnavailable, NotToBeHadError, DecodeError) as error:
            return f"the checkpoint of the log is not on enough other clouds: {error}"
        return None

    def step(self) -> Pause:
        """At first, begin with a checkpoint; then look whether a new one is due."""
        if not self._sharing.begun.is_set():
            try:
                self._begin()
            finally:
                self._sharing.begun.set()
                self._sharing.members_changed()
        elif self._looks:
            self._look()
        self._looks = True
        return Pause(self.checkpointer.machine.limits.look_seconds)

    def _look(self) -> None:
        self._following.compare_states()
        if self._signals.transfers_paused:
            return
        before = frozenset(self._sharing.current_members())
        self.checkpointer.look(self.heads(), self._monotonic())
        if frozenset(self._sharing.current_members()) != before:
            self._sharing.members_changed()

    def _begin(self) -> None:
        """Begin with the newest checkpoint that the inviter names, if there is one. If the inviter is a
        recovery kit, begin with the one that most members have stated."""
        members = self._sharing.current_members()
        if members.public_key(self._inviter) is not None:
            named = self._named_by(self._inviter, members)
            if named is not None:
                self.checkpointer.intake.begin(named)
            return
        all_named = {self._named_by(device, members) for device in members} - {None}
        for one in self._fetching.by_statements(cast("set[CheckpointId]", all_named), members):
            if self.checkpointer.intake.begin(one):
                return

    def _named_by(self, device: bytes, members: Members) -> CheckpointId | None:
        """The checkpoint that a member's head on the clouds names."""
        public = members.public_key(device)
        assert public is not None
        volume, keys = self._sharing.volume, self._ring.segments
        try:
            head = self._engine.get_object(
                head_name(device),
                _HEAD_BYTES,
                lambda data: decode_head(data, volume, public, keys),
                older=False,
            )
        except CloudsUnavailable as error:
            log.info("no checkpoint to begin with: %s", error)
            return None
        return head.checkpoint


class _Store:
    """The clouds of the volume as `Depositor` uses them."""

    def __init__(self, clouds: Clouds) -> None:
        self._clouds = clouds
        self._engine = clouds.engine

    @property
    def copies(self) -> int:
        return self._clouds.copies()

    @property
    def in_use(self) -> Sequence[int]:
        return self._engine.in_use

    @property
    def numbers(self) -> Collection[int]:
        return self._engine.numbers

    def put(self, name: str, data: bytes) -> Collection[int]:
        return self._clouds.put_object(name, data)

    def put_on(self, cloud: int, name: str, data: bytes) -> str | None:
        return self._engine.upkeep.put(cloud, name, data)

    def look(self, cloud: int, name: str, limit: int, verify: Callable[[bytes], object]) -> Finding | None:
        found = self._engine.upkeep.look_at(cloud, name, limit, verify)
        if found is not None and found.kind == "missing":
            self._engine.upkeep.excuse(cloud, name)  # it was not told for certain that it has it
        return found

    def names(self, cloud: int, prefix: str, most: int) -> Sequence[str] | None:
        return self._engine.upkeep.names(cloud, prefix, most)

    def delete(self, cloud: int, names: Sequence[str]) -> str | None:
        failure = self._engine.upkeep.delete(cloud, names)
        if self._engine.upkeep.refused_deletion(cloud) is not None:
            return None  # another device, one that may, does it after the next checkpoint
        for name in names if failure is None else ():
            self._engine.upkeep.excuse(cloud, name)
        return failure
