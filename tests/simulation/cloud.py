"""Clouds that keep the devices' log segments and heads, or do not: they may be down, forget, and lie."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Final, TypeVar

from hybrisfs.dispersal.errors import (
    CloudsUnavailable,
    Finding,
    IntegrityError,
    ObjectMissing,
    UnreadableHereError,
)
from hybrisfs.dispersal.probe import Changed, Failed, Listing, Look, Missing, Polled, Unchanged

__all__ = ["Accusation", "Cloud", "Clouds", "Mood"]

T = TypeVar("T")


class Mood(Enum):
    """How a cloud behaves now."""

    WELL = "well"
    DOWN = "down"
    OLD = "old"  # it shows heads of before, and no segment that came last
    MIXED = "mixed"  # it returns other objects than those asked for
    GARBLED = "garbled"  # it changes, cuts and lengthens what it returns
    HIDING = "hiding"  # it denies having this and that
    LOSING = "losing"  # it acknowledges what it does not keep


HONEST: Final = (Mood.WELL, Mood.WELL, Mood.DOWN)
"""What may also befall a cloud that does not lie."""


class Cloud:
    """Every version of every object, and what it tells of them in its mood."""

    def __init__(self, random: Random) -> None:
        self.mood = Mood.WELL
        self._random = random
        self._versions: dict[str, list[bytes]] = {}

    @property
    def is_up(self) -> bool:
        return self.mood is not Mood.DOWN

    def put(self, name: str, data: bytes) -> None:
        if self.mood is not Mood.LOSING:
            self._versions.setdefault(name, []).append(data)

    def get(self, name: str) -> bytes | None:
        """What it returns, None when it says that there is no such object."""
        versions = self._versions.get(name, [])
        match self.mood:
            case Mood.OLD:
                if len(versions) == 1 and self._random.random() < 0.5:
                    return None
                return versions[0] if versions else None
            case Mood.MIXED if self._versions:
                return self._versions[self._random.choice(list(self._versions))][-1]
            case Mood.HIDING if self._random.random() < 0.6:
                return None
            case Mood.GARBLED if versions:
                return self._garbled(versions[-1])
        return versions[-1] if versions else None

    def first(self, name: str) -> bytes | None:
        """What it was given first under the name: what it shows when it is OLD."""
        versions = self._versions.get(name)
        return versions[0] if versions else None

    def everything(self) -> Mapping[str, Sequence[bytes]]:
        """All versions of all objects, by their names."""
        return self._versions

    def list(self, prefix: str) -> list[str]:
        names = [name for name in self._versions if name.startswith(prefix)]
        if self.mood in (Mood.WELL, Mood.LOSING):
            return names
        made_up = f"{prefix}{self._random.randrange(1, 99):016x}-{self._random.randbytes(8).hex()}"
        return [*(name for name in names if self._random.random() < 0.5), made_up, "log/nonsense"]

    def delete(self, name: str) -> None:
        if self.mood is not Mood.LOSING:
            self._versions.pop(name, None)

    def delete_all(self, prefix: str) -> None:
        """It loses everything under such names."""
        for name in [name for name in self._versions if name.startswith(prefix)]:
            del self._versions[name]

    def _garbled(self, data: bytes) -> bytes:
        if self._random.random() < 0.3:
            return data
        at = self._random.randrange(len(data))
        kind = self._random.randrange(3)
        if kind == 0:
            return data[:at]
        if kind == 1:
            return data + data[at:]
        return data[:at] + bytes((data[at] ^ 1 << self._random.randrange(8),)) + data[at + 1 :]


Accusation = tuple[int, str]
"""(cloud, name of the object)"""


class Clouds:
    """All clouds of the volume, as `receive.pull` and `write.ship` use the engine; f of them may lie."""

    def __init__(self, random: Random, count: int, f: int, copies: int) -> None:
        self.f = f
        self.random = random
        self.all = [Cloud(Random(random.random())) for _ in range(count)]
        self.liars = frozenset(random.sample(range(count), f))
        self.accused: set[Accusation] = set()
        self.full = False
        """Whether they take no object of which there are copies on some."""
        self.keep_all = False
        """Whether they say that they have deleted what they keep."""
        self.in_doubt = False
        """Whether all that is looked at is wrong."""
        self._copies = copies

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(len(self.all)))

    def change_mood(self, number: int) -> None:
        moods = tuple(Mood) if number in self.liars else HONEST
        self.all[number].mood = self.random.choice(moods)

    @property
    def followed(self) -> tuple[int, ...]:
        return self.in_use

    @property
    def in_use(self) -> tuple[int, ...]:
        return self.numbers

    def set_moods(self, mood: Mood, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.all[number].mood = mood

    # -- as the engine ---------------------------------------------------------------------------

    def put_object(self, name: str, data: bytes) -> tuple[int, ...]:
        """Store as many copies as are needed. Raises CloudsUnavailable; some may be there even so."""
        if self.full:
            raise CloudsUnavailable(name, {})
        order = self.random.sample(self.numbers, len(self.all))
        return self._put(name, data, [n for n in order if self.all[n].is_up][: self._copies], self._copies)

    def put_everywhere(self, name: str, data: bytes, clouds: Container[int] | None = None) -> tuple[int, ...]:
        wanted = [n for n in self.numbers if clouds is None or n in clouds]
        return self._put(name, data, [n for n in wanted if self.all[n].is_up], self.f + 1)

    def _put(self, name: str, data: bytes, to: Sequence[int], least: int) -> tuple[int, ...]:
        for number in to:
            self.all[number].put(name, bytes(data))
        if len(to) < least:
            raise CloudsUnavailable(name, {})
        return tuple(to)

    def poll_objects(self, looks: Sequence[Look], *, limit: int, timeout: float) -> Mapping[Look, Polled]:
        return {look: self._poll(look, limit) for look in looks}

    def _poll(self, look: Look, limit: int) -> Polled:
        cloud = self.all[look.cloud]
        if not cloud.is_up:
            return Failed("is down")
        data = cloud.get(look.name)
        if data is None:
            return Missing()
        if len(data) > limit:
            return Failed("is too long", wrong=True)
        tag = data.hex()[-64:]
        return Unchanged() if tag == look.tag else Changed(data, tag)

    def get_object(self, name: str, limit: int, verify: Callable[[bytes], T]) -> T:
        missing = 0
        for number in self.random.sample(self.numbers, len(self.all)):
            cloud = self.all[number]
            data = cloud.get(name) if cloud.is_up else None
            if data is None:
                missing += cloud.is_up
                continue
            try:
                return verify(data[: limit + 1])
            except UnreadableHereError:
                continue
            except (ValueError, IntegrityError):
                self.accused.add((number, name))
        if missing >= len(self.all) - self.f:
            raise ObjectMissing(name, {})
        raise CloudsUnavailable(name, {})

    def list_objects(self, prefix: str, *, most: int, timeout: float) -> Listing:
        up = [number for number in self.numbers if self.all[number].is_up]
        names = {name for number in up for name in self.all[number].list(prefix)}
        return Listing(tuple(sorted(names)), frozenset(up))

    def accuse(
        self, cloud: int, name: str, reason: str, limit: int, recheck: Callable[[bytes], object]
    ) -> None:
        self.accused.add((cloud, name))

    # -- as the checkpointer of checkpoints uses them --------------------------------------------------

    def put(self, name: str, data: bytes) -> tuple[int, ...]:
        return self.put_object(name, data)

    @property
    def copies(self) -> int:
        return self._copies

    def put_on(self, cloud: int, name: str, data: bytes) -> str | None:
        if not self.all[cloud].is_up:
            return "is down"
        self.all[cloud].put(name, data)
        return None

    def look(self, cloud: int, name: str, limit: int, verify: Callable[[bytes], object]) -> Finding | None:
        data = self.all[cloud].get(name) if self.all[cloud].is_up else None
        if data is None:
            return Finding("missing" if self.all[cloud].is_up else "unreadable", name)
        if self.in_doubt:
            return Finding("corrupt", name)
        try:
            verify(data[: limit + 1])
        except (ValueError, IntegrityError):
            return Finding("corrupt", name)
        return None

    def names(self, cloud: int, prefix: str, most: int) -> list[str] | None:
        return self.all[cloud].list(prefix) if self.all[cloud].is_up else None

    def delete(self, cloud: int, names: Sequence[str]) -> str | None:
        if not self.all[cloud].is_up:
            return "is down"
        for name in () if self.keep_all else names:
            self.all[cloud].delete(name)
        return None
