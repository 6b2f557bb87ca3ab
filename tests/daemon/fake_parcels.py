"""Parcels as a daemon knows them, made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath

from hybrisfs.api.parcels import Parcel, ParcelList
from hybrisfs.errors import UsageError

__all__ = ["FakeParcels"]


@dataclass
class FakeParcels:
    """Every file has a thousand bytes, and is shared at the same time."""

    name: str = "photos"
    made: list[Parcel] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    def make(self, path: PurePath, days: int, cloud: str | None, tell: Callable[[int, int], None]) -> Parcel:
        tell(1000, 1000)
        parcel = Parcel(
            id=f"{len(self.made) + 10:032x}"[::-1],
            path=str(path),
            size=1000,
            made=1_800_000_000,
            expires=1_800_000_000 + days * 86400,
            cloud=cloud or "s3",
            device="laptop",
            link=f"https://s3.example/parcel-{len(self.made)}#key",
            whole=True,
        )
        self.made.append(parcel)
        return parcel

    def all(self) -> ParcelList:
        return ParcelList(self.name, list(self.made), self.silent)

    def revoke(self, which: str) -> Parcel:
        for one in self.made:
            if one.path == which or one.id.startswith(which):
                self.made.remove(one)
                return one
        raise UsageError(f"nothing that is shared is called {which}")
