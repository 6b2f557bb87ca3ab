"""Which clouds keep the keys of a container, and how: what `--metadata clouds` stands for.

The log of the volume holds it as the URL of a service: that very set of clouds, for ever. Containers get to
other clouds by being made again there.

    clouds:PROTOCOL/CLOUD,CLOUD,.../T,B     the numbers of the clouds; T of them may fail, B in any way
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS
from hybrisfs.errors import UsageError
from hybrisfs.quorums.thresholds import PASIS, POWERSTORE, Thresholds

__all__ = ["CloudPlace", "is_on_clouds"]

_SCHEME: Final = "clouds"
_MOST_CLOUD: Final = (1 << 16) - 1
_URL: Final = re.compile(
    rf"{_SCHEME}:({POWERSTORE}|{PASIS})/([0-9]{{1,5}}(?:,[0-9]{{1,5}})*)/([0-9]{{1,2}}),([0-9]{{1,2}})"
)
_WISH: Final = re.compile(rf"{_SCHEME}(?::({POWERSTORE}|{PASIS})(?:,b=([0-9]{{1,2}}))?)?")


def is_on_clouds(place: str) -> bool:
    """Whether a place of metadata is the clouds."""
    return place.partition(":")[0] == _SCHEME


class CloudPlace(Struct, frozen=True):
    """The clouds that keep the keys of containers."""

    protocol: str
    clouds: tuple[int, ...]
    t: int
    b: int

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(self.protocol, len(self.clouds), self.t, self.b)

    @property
    def url(self) -> str:
        """How the log has it."""
        return f"{_SCHEME}:{self.protocol}/{','.join(map(str, self.clouds))}/{self.t},{self.b}"

    @staticmethod
    def wished(wish: str, clouds: Iterable[int], f: int) -> CloudPlace:
        """`clouds`, `clouds:pasis` or `clouds:pasis,b=0`, on the clouds of a volume of which *f* may fail; or
        what the log has, to come back to it. Raises UsageError."""
        if _URL.fullmatch(wish):
            return CloudPlace.parse(wish)
        found = _WISH.fullmatch(wish)
        if found is None or (found[2] is not None and found[1] != PASIS):
            raise UsageError(
                f"{wish!r} is no way to keep keys on the clouds",
                "",
                "It is clouds, clouds:pasis, or clouds:pasis,b=0 when clouds fail but do not lie.",
            )
        b = f if found[2] is None else int(found[2])
        return CloudPlace(found[1] or POWERSTORE, tuple(sorted(clouds)), f, b)._checked()

    @staticmethod
    def parse(url: str) -> CloudPlace:
        """What the log has. Raises UsageError."""
        found = _URL.fullmatch(url)
        numbers = () if found is None else tuple(map(int, found[2].split(",")))
        if found is None or numbers != tuple(sorted(set(numbers))) or numbers[-1] > _MOST_CLOUD:
            raise UsageError(f"{url[:80]!r} names no set of clouds")
        return CloudPlace(found[1], numbers, int(found[3]), int(found[4]))._checked()

    def _checked(self) -> CloudPlace:
        self.thresholds.check()
        if len(self.clouds) > MAX_FRAGMENTS:
            raise UsageError(f"more than {MAX_FRAGMENTS} clouds cannot keep keys together")
        return self
