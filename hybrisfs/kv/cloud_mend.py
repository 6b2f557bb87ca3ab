"""Looking after the values of containers on the clouds: verifying what each cloud has, and putting it back.

A cloud that was away when a value was written has nothing of it, and lies not. So what is missing is put
there, and held against nobody. Nothing moves elsewhere: a container stays on its clouds.

What clouds do not list is put there in the background (`CloudMender.fill`). Lists say nothing of what is in
the objects: `scrub` and `repair` read these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterator
from typing import NamedTuple

from hybrisfs.dispersal.errors import CloudsUnavailable, DispersalError, Finding, IntegrityError
from hybrisfs.dispersal.upkeep import Repair
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.reading import is_latest
from hybrisfs.quorums.register import Register
from hybrisfs.quorums.rounds import RoundFailedError

__all__ = ["CloudMender", "Held"]

log = logging.getLogger(__name__)


class Held(NamedTuple):
    """The latest version of a key, which all clouds of the container should have."""

    label: str
    """CONTAINER/KEY."""
    register: Register
    version: Version


class CloudMender:
    """Mends the values of one store. Thread-safe; blocks for a bounded time."""

    def __init__(self, store: CloudStore) -> None:
        self._store = store

    @property
    def clouds(self) -> tuple[int, ...]:
        """Those that keep the containers."""
        return self._store.place.clouds

    def held(self) -> Iterator[Held]:
        """All keys that have values, container by container. Raises HybrisError and CloudsUnavailable."""
        for container in self._store.containers():
            for one in self._store.latest(container):
                yield Held(f"{container}/{one.metadata.key}", one.register, one.version)

    def look_at(self, held: Held, cloud: int) -> Finding | None:
        """What is wrong with a cloud's object; None also when the key has another value by now."""
        found = self._get(held, cloud)
        return None if isinstance(found, bytes) or not self._is_latest(held) else found

    def mend(self, held: Held, writable: Container[int]) -> list[Repair]:
        """Verify the objects of a value on all clouds and put back, on *writable* ones, what is wrong; what
        was."""
        looked = {cloud: self._get(held, cloud) for cloud in self.clouds}
        good = {cloud: found for cloud, found in looked.items() if isinstance(found, bytes)}
        wrong = {cloud: found for cloud, found in looked.items() if isinstance(found, Finding)}
        if not wrong or not self._is_latest(held):
            return []
        if len(good) < held.version.needed:
            failure = f"too little of the value of {held.label} is left to rebuild it"
            return [Repair(cloud, found, None, failure) for cloud, found in wrong.items()]
        try:
            objects = self._store.keys.codec.rebuild(held.version, good)
        except IntegrityError as error:
            return [Repair(cloud, found, None, str(error)) for cloud, found in wrong.items()]
        repairs = []
        for cloud, found in wrong.items():
            failure = "no cloud can take it now"
            if cloud in writable:
                failure = self._put(held, cloud, bytes(objects(cloud)))
            repairs.append(Repair(cloud, found, None if failure else cloud, failure))
        return repairs

    def fill(self, writable: Collection[int], go_on: Callable[[], bool]) -> set[int]:
        """Put the latest versions on those of the *writable* clouds that do not list them; the clouds that
        did not answer, or lack something still. Stops when *go_on* is false. Raises CloudsUnavailable."""
        left: set[int] = set()
        for found in self._store.surveys():
            left |= found.silent
            for register, version, lacking in found.short:
                if not go_on():
                    return left | lacking
                left |= lacking - self._fill(register, version, lacking.intersection(writable))
        return left

    def _fill(self, register: Register, version: Version, clouds: Collection[int]) -> set[int]:
        """The clouds that have the version now."""
        if not clouds:
            return set()
        try:
            return self._store.keys.run("it was not put there", register.fill(version, clouds))
        except DispersalError as error:
            log.info("clouds lack a value of a container still: %s", error)
            return set()

    def _get(self, held: Held, cloud: int) -> bytes | Finding:
        what = f"the value of {held.label}"
        try:
            return self._store.keys.run(what, held.register.get(held.version, cloud))
        except RoundFailedError as error:
            return Finding(next(iter(error.kinds)), str(error), key=held.label)
        except DispersalError as error:
            return Finding("unreadable", f"{what} cannot be read: {error}", key=held.label)

    def _put(self, held: Held, cloud: int, data: bytes) -> str:
        """Why that failed; empty when the cloud has given it back."""
        try:
            self._store.keys.run("it was not put back", held.register.put_back(held.version, cloud, data))
        except CloudsUnavailable as error:
            return "; ".join(error.reasons.values())
        found = self._get(held, cloud)
        return found.what if isinstance(found, Finding) else ""

    def _is_latest(self, held: Held) -> bool:
        what = f"{held.label} cannot be read"
        return self._store.keys.run(what, is_latest(held.register, held.version))
