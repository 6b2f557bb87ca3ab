"""What the tests of pairing share: keys, a grant, a code, and two machines that talk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from nacl.signing import SigningKey

from hybrisfs.keys import EpochKeys, SharedKeys
from hybrisfs.pairing.code import PairingCode
from hybrisfs.pairing.messages import Grant, GrantedCloud
from hybrisfs.pairing.protocol import Inviter, Joiner, State
from sync import FIRST_EPOCH
from sync.identity import DeviceKey

NOW = 1_800_000_000.0
INVITER = DeviceKey.from_seed(bytes([1]) * 32)
JOINER = DeviceKey.from_seed(bytes([2]) * 32)
OTHER = DeviceKey.from_seed(bytes([3]) * 32)
FORMER = DeviceKey.from_seed(bytes([4]) * 32)
URLS = ("file:///mnt/a", "s3://bucket/photos?endpoint=https://s3.example.org", "webdav://ann@example.net/dav")
CODE = PairingCode(bytes(range(16)), int(NOW) + 600, URLS, (("192.0.2.7", 40001), ("2001:db8::7", 40001)))
GRANT = Grant(
    volume=bytes([9]) * 16,
    name="photos",
    keys=SharedKeys(
        bytes([5]) * 32,
        (
            EpochKeys(FIRST_EPOCH, 0, bytes([4]) * 32, bytes([6]) * 32),
            EpochKeys(b"next", 1, bytes([7]) * 32, bytes([8]) * 32, frozenset({FORMER.device_id})),
        ),
    ),
    f=1,
    k=1,
    clouds=tuple(
        GrantedCloud(number, f"cloud {number}", url, b'{"key": "geheim"}' if number else None)
        for number, url in enumerate(URLS)
    ),
    members=(INVITER.public, OTHER.public),
    former=(FORMER.public,),
)


class Impostor(DeviceKey):
    """Shows the public key of a device, and signs with its own."""

    __slots__ = ()

    def __init__(self, shown: DeviceKey, own: DeviceKey) -> None:
        super().__init__(SigningKey(own.seed))
        self.public, self.device_id = shown.public, shown.device_id


def seeded(seed: int) -> Callable[[int], bytes]:
    """Random bytes that are the same each time."""
    return Random(seed).randbytes


def inviter(code: PairingCode = CODE, seed: int = 1, key: DeviceKey = INVITER) -> Inviter:
    return Inviter(code, key, "laptop", GRANT.volume, GRANT.name, seeded(seed))


def joiner(code: PairingCode = CODE, seed: int = 2, key: DeviceKey = JOINER) -> Joiner:
    return Joiner(code, key, "desktop", seeded(seed))


def answer(machine: Inviter | Joiner, message: bytes, now: float = NOW) -> bytes:
    """What the machine says to this; it must say something. Every offer can be taken."""
    said = machine.receive(message, now)
    if isinstance(machine, Joiner) and machine.state is State.OFFERED:
        said = machine.accept()
    assert said is not None
    return said


def introduced(code: PairingCode = CODE, key: DeviceKey = INVITER) -> tuple[Inviter, Joiner]:
    """Two machines that have come to the comparison string."""
    one, two = inviter(code, key=key), joiner(code)
    assert one.receive(answer(two, answer(one, two.hello(NOW))), NOW) is None
    return one, two


def granted(machine: Inviter, grant: Grant = GRANT, now: float = NOW) -> bytes:
    """The message with the keys: the person has confirmed, and the other device is a member."""
    machine.confirm(now)
    return machine.grant(grant)


def flip(data: bytes, bit: int) -> bytes:
    """`data` with one bit flipped; `bit` counts modulo the number of bits."""
    position, shift = divmod(bit % (len(data) * 8), 8)
    return data[:position] + bytes([data[position] ^ 1 << shift]) + data[position + 1 :]
