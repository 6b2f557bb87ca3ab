"""The devices of a volume, as registers say: which may write, and what people call them.

========  =======================  ==================================================================
register  key                      value
========  =======================  ==================================================================
member    ``m`` device id (16)     version u8 = 2, public key (32), name (blob <= 255, UTF-8),
                                   state u8: 0 a device, 1 one that no longer belongs to the volume,
                                   2 one in reserve
========  =======================  ==================================================================

The first device lets itself in; each later one is let in by a device that is a member. Of concurrent values,
the one with the highest stamp counts. A register that says that a device no longer belongs to the volume is a
vote of its author: what follows from all votes, `hybrisfs.members.removal` tells. A device that is removed
for good never comes back: pairing it again makes it another one.

A device *in reserve* is the key of a recovery kit (`hybrisfs.recovery`): it gets the keys of every epoch, and
its updates are accepted. It is not a machine, so no device waits for it. It is in reserve only with the
record of its kit. The record still says so when the member register was overwritten. No register makes a
reserve of a device, or a device of a reserve.

A device and its inviter both say that the inviter let it in (`hybrisfs.members.lineage`). Where they do
not, the inviter is the author of the first member register that arrived; one of its own says nothing.
"""

from __future__ import annotations

import functools
from typing import Final

from msgspec import Struct

from hybrisfs.kinds import MEMBER
from sync import DecodeError, device_id_of
from sync.codec import Reader, Writer
from sync.identity import is_public_key

__all__ = ["MAX_DEVICE_NAME", "Member", "is_device_key", "member_key"]

MAX_DEVICE_NAME: Final = 255
_VERSION: Final = 2
_DEVICE, _REMOVED, _RESERVE = 0, 1, 2


def member_key(device: bytes) -> bytes:
    return MEMBER.prefix + device


class Member(Struct, frozen=True):
    """A device of the volume."""

    public: bytes
    name: str
    removed: bool = False
    reserve: bool = False

    @property
    def device(self) -> bytes:
        return device_id_of(self.public)

    def encode(self) -> bytes:
        state = _REMOVED if self.removed else _RESERVE if self.reserve else _DEVICE
        return Writer().u8(_VERSION).raw(self.public).blob(self.name.encode()).u8(state).getvalue()

    @staticmethod
    def decode(value: bytes) -> Member:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a member record of another version")
        public, name = reader.raw(32), reader.blob(MAX_DEVICE_NAME)
        state = reader.u8()
        reader.end()
        if state > _RESERVE:
            raise DecodeError("a machine is a member, removed or in reserve")
        try:
            member = Member(public, name.decode(), state == _REMOVED, state == _RESERVE)
        except UnicodeDecodeError as error:
            raise DecodeError("the name of a machine is not text") from error
        if not member.name.isprintable():
            raise DecodeError("the name of a machine cannot be shown")
        if not is_device_key(public):
            raise DecodeError("a public key that is none")
        return member


is_device_key: Final = functools.lru_cache(4096)(is_public_key)
"""Whether bytes can be the public key of a device."""
