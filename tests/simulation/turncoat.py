"""A device that turns bad: until some moment it was a device like any other, and its log goes on existing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from hybrisfs.kinds import ROLE, SERIAL_SIZE
from hybrisfs.members.epochs import (
    encode_grant,
    encode_grant_object,
    grant_name,
    open_grant,
    open_grant_object,
)
from hybrisfs.members.members import Member
from hybrisfs.members.roles import Role, RoleRecord
from hybrisfs.merge.authority import described, fault
from sync import DecodeError, EpochKey, LimitError, Members, OneKey, Write
from sync.update import SignedUpdate, decode_signed
from tests.merge.fleet import Device
from tests.simulation.cloud import Clouds
from tests.simulation.forgery import KINDS, SLOW, Forger, Heard
from tests.simulation.liar import Liar
from tests.sync.publisher import Publisher
from tests.tree.rig import SEGMENT_KEYS, VOLUME

__all__ = ["Turncoat"]

_TOLD: Final = 8  # writes of an update that are told in words
_FLOOD: Final = 12  # updates
_MOST_KINDS: Final = 7
_SLOW_SHARE: Final = 0.05


class Turncoat(Liar):
    """Does what a `Liar` does, and forges what others have written: some `KINDS` only, since what one kind
    comes to would hide what comes of others.

    *log*: all that the device had accepted when it turned bad, causes first. *kinds*: those to be forged when
    that is not left to chance; nothing else is done then.
    """

    def __init__(
        self,
        random: Random,
        others: Sequence[Member],
        device: Device,
        log: Iterable[bytes],
        kinds: Sequence[str] = (),
    ) -> None:
        super().__init__(random, others, device.key)
        self.name = device.name
        self.words: list[str] = []
        """What it has signed since somebody looked."""
        self._kinds = kinds or _some_kinds(random)
        self._epochs = {epoch.id: epoch for epoch in device.rig.ring.keys.shared.epochs}
        face = self.faces[0]
        for data in log:
            face.receive(decode_signed(data))
        tip = device.rig.updates.own_tip()
        face.signed = next((one for one in face.order if tip is not None and one.hash == tip.hash), None)
        face.restart()
        face.unshipped = _chain(face)
        self.forger = Forger(random, device.key, others, Heard(()))
        forging = [self._forges] * (3 * len(self.deeds))
        self.deeds = [self._forges] if kinds else [*self.deeds, *forging]

    def lock_out(self) -> None:
        """Say of all others that they only read."""
        random = self._random
        self._sign(
            self.faces[0],
            [
                (
                    bytes((ROLE,)) + one.device + random.randbytes(SERIAL_SIZE),
                    RoleRecord(Role.READER, random.random() < 0.3).encode(),
                )
                for one in self._honest
            ],
            "roles",
        )

    def _forges(self) -> list[bytes]:
        """Forged writes in one update or in many, on one of its faces."""
        random, face = self._random, self._random.choice(self.faces)
        self.forger.heard = Heard(write for update in face.order for write in update.writes)
        updates = random.choice((1, 1, 1, 2, 3, random.randrange(1, _FLOOD)))
        kinds = random.choices(self._kinds, k=random.choice((1, 1, 2, 3)))
        for _ in range(updates):
            together: dict[bytes, bytes | None] = {}
            for kind in kinds:
                together.update(self.forger.forge(kind))
            self._sign(face, list(together.items()), ", ".join(kinds))
        return [update.data for update in face.order]

    def _sign(self, face: Publisher, writes: Sequence[Write], kinds: str) -> None:
        if not writes:
            return
        try:
            self._write(face, writes)
        except (LimitError, ValueError) as error:
            self.words.append(f"{self.name}, which is bad, cannot sign [{kinds}]: {error}")
            return
        told = [_in_words(self.id, *write) for write in writes[:_TOLD]]
        more = [f"and {len(writes) - _TOLD} more"] if len(writes) > _TOLD else []
        self.words.append(f"{self.name}, which is bad, signs [{kinds}] {'; '.join([*told, *more])}")

    def put_head(self, clouds: Clouds, time_ns: int) -> None:
        """Like a liar; sometimes sealed with an epoch of its own, which it grants to all."""
        if not self.forger.epochs or self._random.random() < 0.7:
            super().put_head(clouds, time_ns)
            return
        epoch = self._random.choice(self.forger.epochs)
        publics = [self.member.public, *(member.public for member in self._honest)]
        grant = encode_grant(VOLUME, [epoch], Members(publics), random_bytes=self._random.randbytes)
        for cloud in clouds.all:
            cloud.put(grant_name(epoch.id, self.id), encode_grant_object(epoch.id, grant, self.key))
        face = self._random.choice(self.faces)
        face.box_key = _OneEpoch(EpochKey(epoch.id, epoch.segments))
        super().put_head(clouds, time_ns)
        face.box_key = SEGMENT_KEYS

    def keys(self, clouds: Clouds, logs: Iterable[bytes], visible: Members) -> set[bytes]:
        """The data keys of all epochs that it has: those that it had or made, and what anybody has granted to
        it or to keys of its own that are not *visible* to people as members."""
        keys = {one.data for one in (*self._epochs.values(), *self.forger.epochs)}
        hands = [self.key, *(one for one in self.forger.puppets if one.device_id not in visible)]
        grants = [
            value or b"" for data in logs for key, value in decode_signed(data).writes if key[:1] == b"e"
        ]
        objects = [
            (name, data)
            for cloud in clouds.all
            for name, versions in cloud.everything().items()
            if name.startswith("epochs/")
            for data in versions
        ]
        for hand in hands:
            for grant in grants:
                try:
                    keys |= {one.data for one in open_grant(grant, VOLUME, hand)}
                except DecodeError:
                    continue
            for name, data in objects:
                epoch, writer = (bytes.fromhex(part) for part in name.split("/")[1:])
                public = next((one.public for one in self._honest if one.device == writer), None)
                if public is not None:
                    found = open_grant_object(data, epoch, VOLUME, public, writer, hand)
                    keys.update(one.data for one in found)
        return keys


def _some_kinds(random: Random) -> list[str]:
    chosen = random.sample(list(KINDS), 1 + random.randrange(_MOST_KINDS))
    return [kind for kind in chosen if kind not in SLOW or random.random() < _SLOW_SHARE] or ["changed"]


class _OneEpoch(OneKey):
    """Seals with the keys of an epoch that is not the first."""

    def __init__(self, epoch: EpochKey) -> None:
        super().__init__(epoch.key)
        self._key = epoch

    def find(self, epoch: bytes) -> bytes | None:
        return self._key.key if epoch == self._key.epoch else SEGMENT_KEYS.find(epoch)


def _chain(face: Publisher) -> list[SignedUpdate]:
    """The updates of its own chain, oldest first."""
    known = {update.hash: update for update in face.order}
    chain: list[SignedUpdate] = []
    at = face.signed
    while at is not None:
        chain.append(at)
        at = known.get(at.header.prev)
    return chain[::-1]


def _in_words(writer: bytes, key: bytes, value: bytes | None) -> str:
    wrong = fault(writer, key, value)
    what = "ended" if value is None else f"= {value[:24].hex()}{'...' if len(value) > 24 else ''}"
    return f"{described(key)} {what}{f' (counts for nothing: {wrong})' if wrong else ''}"
