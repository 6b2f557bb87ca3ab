"""Checking all shares on the clouds, a few at a time, so that each is checked once within so many days.

A check reads the header of a share, in one request if the database knows all chunks of the pack and in two
otherwise: it proves that the share of this pack is there. A *round* goes through the packs that have a share
on a cloud, by their numbers. Each cloud has a round of its own: one that is away does not hold up the others,
and is checked when it is back. The database keeps how far a round has come, so a device that is off now and
then catches up.

The number of requests follows from the volume and the days: 10,000 packs with a share on each of two clouds
take 6,700 a month for 90 days, which is a quarter of a cent at Amazon's list price. Contents are not read
here, for that costs as much as to fetch them: check-ups read some, chosen at random
(`hybrisfs.clouds.checkup`), so a cloud cannot foresee which, as it could in a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hybrisfs.api.clouds import Checked
from hybrisfs.environment import Environment
from hybrisfs.state.packs import PackPlace, read_pack_near
from hybrisfs.state.state import State

__all__ = ["Patrol"]

_DAY: Final = 86_400.0  # seconds
_MOST: Final = 500  # checks of one step: a device that was off for weeks takes some hours
_REQUESTS: Final = 1  # of a check
_DAYS_OF_MONTH: Final = 30


class _Round(NamedTuple):
    """One that is under way. *since*: seconds since the epoch; *number*: of the last pack that was
    checked; *before*: when the last whole round began, 0 before there was one."""

    since: float
    number: int
    before: float

    def encode(self) -> str:
        return f"{self.since!r} {self.number} {self.before!r}"

    @staticmethod
    def decode(text: str) -> _Round:
        since, number, before = text.split()
        return _Round(float(since), int(number), float(before))


class Patrol:
    """The rounds of one volume. `check` may be called from a thread for each cloud."""

    def __init__(self, state: State, environment: Environment, days: int) -> None:
        self.days = days
        """Within which each share is checked; may be set at any time."""
        self._state = state
        self._time_ns = environment.time_ns

    def check(self, cloud: int, look: Callable[[PackPlace], bool]) -> None:
        """Check the shares on a cloud that are due by now, until *look* says that it gets no answer."""
        now = self._time_ns() / 1e9
        known = self._round(cloud)
        found = _Round(now, 0, 0.0) if known is None else known._replace(since=min(known.since, now))
        for pack in self._due(cloud, found, now):
            if not look(pack):
                break
            found = found._replace(number=pack.number)
        else:
            if now - found.since >= self.days * _DAY and self._next(cloud, found.number) is None:
                found = _Round(now, 0, found.since)
        if found != known:
            with self._state.transaction() as tx:
                tx.add_meta(_key(cloud), found.encode())

    def facts(self, cloud: int) -> Checked:
        """How far the round of a cloud has come."""
        found = self._round(cloud) or _Round(0.0, 0, 0.0)
        with self._state.transaction() as tx:
            newest, shares = tx.packs.newest(), tx.packs.count_on_cloud(cloud)
        return Checked(
            days=self.days,
            since=found.since or None,
            before=found.before or None,
            share=min(1.0, found.number / newest) if newest else 1.0,
            requests=shares * _REQUESTS * _DAYS_OF_MONTH / self.days,
        )

    def _due(self, cloud: int, found: _Round, now: float) -> Iterator[PackPlace]:
        """The next packs, up to the one with the number that should have been reached by now."""
        with self._state.transaction() as tx:
            newest = tx.packs.newest()
        share = min(1.0, (now - found.since) / (self.days * _DAY))
        number, target = found.number, newest * share
        for _ in range(_MOST):
            pack = self._next(cloud, number)
            if pack is None or pack.number > target:
                return
            yield pack
            number = pack.number

    def _next(self, cloud: int, number: int) -> PackPlace | None:
        with self._state.transaction() as tx:
            return read_pack_near(tx, cloud, number + 1)

    def _round(self, cloud: int) -> _Round | None:
        with self._state.transaction() as tx:
            text = tx.find_meta(_key(cloud))
        return None if text is None else _Round.decode(text)


def _key(cloud: int) -> str:
    return f"patrol {cloud}"
