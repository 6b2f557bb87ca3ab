"""A member that lies: it forks on purpose, signs nonsense, and tells everybody something else.

It destroys nothing of others, which a member may do: what it writes to their nodes, it writes without knowing
of them, and where it knows of others it writes to nodes of its own.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec.structs import replace

from hybrisfs.members.members import Member
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Content, Place, attr_key, content_key, place_key
from sync import (
    NONCE_SIZE,
    CheckpointId,
    DeviceKey,
    Head,
    Members,
    Statement,
    decode_head,
    encode_head,
    head_name,
)
from sync.head import Relayed
from sync.segment import SegmentId
from sync.update import UpdateStamp, Write, decode_signed
from sync.vector import VersionVector
from tests.simulation.cloud import Clouds
from tests.sync.publisher import Publisher
from tests.sync.support import as_update, forge
from tests.tree.rig import SEGMENT_KEYS, VOLUME

__all__ = ["Liar"]

_KEY: Final = DeviceKey.from_seed(b"\xee" * 32)
_MOST_FACES: Final = 4
_NAMES: Final = (b"a", b"b.txt", b"c", b"mallory", b"..", b"", b"a/b", b"\xff\xfe", b"n" * 255, b"x\0y")
_YEARS: Final = 365 * 86_400 * 10**9


class Liar:
    """`faces` are the histories that it shows, each to others."""

    def __init__(self, random: Random, honest: Sequence[Member], key: DeviceKey = _KEY) -> None:
        self.key = key
        self.member = Member(key.public, "mallory")
        self._random = random
        self._honest = honest
        members = Members([self.member.public, *(member.public for member in honest)])
        self.faces = [Publisher(key, members, SEGMENT_KEYS)]
        self.deeds: list[Callable[[], list[bytes]]] = [
            self._writes, self._nonsense, self._impossible, self._false_update, self._writes_blindly
        ]  # fmt: skip

    @property
    def id(self) -> bytes:
        return self.member.device

    def hear(self, log: Sequence[bytes]) -> None:
        """Take in what others have written, on one of its faces."""
        face = self._random.choice(self.faces)
        known = {update.data for update in face.order}
        for data in log:
            if data not in known:
                face.receive(decode_signed(data))

    def fork(self) -> tuple[list[bytes], list[bytes]]:
        """Two histories that contradict each other: for two different devices."""
        face = self._random.choice(self.faces)
        twin = face.restored(salt=self._random.randrange(1 << 30))
        if len(self.faces) < _MOST_FACES:
            self.faces.append(twin)
        self._write(twin, self._own_file())
        self._write(face, self._own_file())
        return _log(face), _log(twin)

    def tell(self) -> list[bytes]:
        """What it tells somebody."""
        return self._random.choice(self.deeds)()

    def put_head(self, clouds: Clouds, time_ns: int) -> None:
        """Bring one of the histories to the clouds, under heads that differ and may be false."""
        face = self._random.choice(self.faces)
        for name, data in face.ship(time_ns):
            for cloud in clouds.all:
                if name != head_name(self.id) or self._random.random() < 0.8:
                    cloud.put(name, data)
        if self._random.random() < 0.5:
            truth = decode_head(face.head(time_ns), VOLUME, self.key.public, face.box_key)
            sealed = encode_head(
                self._false_head(truth), self.key, face.box_key, self._random.randbytes(NONCE_SIZE)
            )
            for cloud in clouds.all:
                if self._random.random() < 0.7:
                    cloud.put(head_name(self.id), sealed)

    def _false_head(self, head: Head) -> Head:
        nowhere = SegmentId(self._random.randrange(1, 1000), self._random.randbytes(8))
        victim = self._random.choice(self._honest).device
        return self._random.choice(
            (
                replace(head, time_ns=head.time_ns + 300 * _YEARS),
                replace(head, time_ns=1),
                replace(head, serial=self._random.choice((0, (1 << 64) - 1))),
                replace(head, vector=VersionVector({**dict(head.vector.items()), self.id: 1 << 40})),
                replace(head, offline=True),
                replace(head, relayed=(Relayed(victim, nowhere),)),
                replace(head, stated=Statement.of(VOLUME, head.vector, self._random.randbytes(32), self.key)),
                replace(head, checkpoint=CheckpointId(*(self._random.randbytes(32) for _ in range(2)))),
            )
        )

    # -- deeds -----------------------------------------------------------------------------------

    def _write(self, face: Publisher, writes: Sequence[Write]) -> None:
        update = face.write(*writes)
        if face.unshipped:
            follows = update.header.prev == face.unshipped[-1].hash
        else:
            follows = face.previous is None or update.header.prev.startswith(face.previous.prefix)
        if not follows:  # it has heard of another of its histories, and goes on there
            face.unshipped, face.previous = [], None
        face.unshipped.append(update)

    def _own_file(self) -> list[Write]:
        node = self._random.randbytes(16)
        name = b"mallory %d" % self._random.randrange(3)
        attr = Attr(stat.S_IFREG | 0o644, 0, 0, 0, self._random.getrandbits(63)).encode()
        return [
            (place_key(node, 0), Place(ROOT_ID, name).encode()),
            (attr_key(node), attr),
            (content_key(node), Content(0, 0, ()).encode()),
        ]

    def _writes(self) -> list[bytes]:
        face = self._random.choice(self.faces)
        self._write(face, self._own_file())
        return _log(face)

    def _nonsense(self) -> list[bytes]:
        """Well-formed updates with keys and values that mean nothing."""
        face = self._random.choice(self.faces)
        writes = {self._odd_key(): self._odd_value() for _ in range(1 + self._random.randrange(5))}
        self._write(face, list(writes.items()))
        return _log(face)

    def _odd_key(self) -> bytes:
        random = self._random
        node = random.randbytes(16)
        return random.choice(
            (
                place_key(node, 0),
                place_key(node, 1 << random.randrange(64)),
                b"p" + node + b"\xff" * random.randrange(40),
                b"p" + node,
                attr_key(node),
                attr_key(node) + b"more",
                content_key(node),
                b"k" + random.randbytes(random.choice((0, 16, 32))),
                b"m" + random.randbytes(16),
                b"m" + random.choice(self._honest).device,
                random.randbytes(1 + random.randrange(20)),
                b"p",
            )
        )

    def _odd_value(self) -> bytes | None:
        random = self._random
        return random.choice((None, b"", random.randbytes(random.randrange(60)), bytes(3000)))

    def _impossible(self) -> list[bytes]:
        """Nodes that no file system can hold: cycles, files with something in them, names that are none."""
        random, face = self._random, self._random.choice(self.faces)
        one, other = random.randbytes(16), random.randbytes(16)
        folder = random.choice((stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, 0, 0xFFFF))
        self._write(
            face,
            [
                (place_key(one, 0), self._place(random.choice((one, other, ROOT_ID)))),
                (place_key(other, 0), self._place(random.choice((one, other, ROOT_ID)))),
                (
                    random.choice((b"p" + other, b"p" + other + b"\xff" * random.randrange(30) + b"\1")),
                    self._place(random.choice((one, ROOT_ID))),
                ),
                (attr_key(one), Attr(folder, 1 << 31, 0, random.choice((7, 1 << 63)), -1).encode()),
                (attr_key(other), Attr(stat.S_IFDIR | 0o755, 0, 0, 0, 0).encode()),
                (content_key(one), random.choice((b"", b"\xff" * 9, Content(1 << 50, 0, ()).encode()))),
            ],
        )
        return _log(face)

    def _place(self, parent: bytes) -> bytes:
        name = self._random.choice(_NAMES)
        former = self._random.choice((b"", b"", parent, self._random.randbytes(16)))
        return Place(parent, name, self._random.random() < 0.2, former).encode()

    def _writes_blindly(self) -> list[bytes]:
        """Something about a node of another device's, by somebody who has seen nothing of it."""
        face = self._random.choice(self.faces)
        keys = [
            key
            for update in face.order
            if update.header.writer != self.id
            for key, _ in update.writes
            if key[:1] in (b"p", b"a", b"c")
        ]
        if not keys:
            return _log(face)
        blind = Publisher(self.key, face.members, face.box_key)
        writes = {self._random.choice(keys): self._odd_value() for _ in range(3)}
        self._write(blind, list(writes.items()))
        return _log(blind)

    def _false_update(self) -> list[bytes]:
        """An update that contradicts itself, properly signed; nobody may accept it."""
        face, random = self._random.choice(self.faces), self._random
        twin = face.restored(salt=1)
        update = twin.write(*self._own_file())
        plain = as_update(update)
        cause = UpdateStamp(
            random.choice(self._honest).device, 1 + random.randrange(40), random.randbytes(16)
        )
        false = random.choice(
            (
                {"clock": plain.clock + 1 + random.randrange(1 << 40)},
                {"clock": max(plain.prev_clock + 1, plain.clock - 1), "history": random.randbytes(32)},
                {"history": random.randbytes(32)},
                {"deps": tuple(sorted({*plain.deps, cause}))},
                {"volume": random.randbytes(16)},
            )
        )
        return [forge(update, self.key, **false).data]


def _log(face: Publisher) -> list[bytes]:
    return [update.data for update in face.order]
