"""What the daemon asks of a volume. `hybrisfs.volume` is the implementation; tests bring a small one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hybrisfs.home import Home

__all__ = ["Cloud", "Config", "OpenVolume", "Report", "VolumeKind"]


class Cloud(Protocol):
    """One cloud of a volume."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...


class Config(Protocol):
    """A volume as it was created."""

    @property
    def name(self) -> str: ...
    @property
    def clouds(self) -> Sequence[Cloud]: ...
    @property
    def f(self) -> int: ...
    @property
    def k(self) -> int: ...


class Report(Protocol):
    """What a check found."""

    def as_dict(self) -> dict[str, Any]:
        """ "problems": each with "where", "what" and "severity"; "checked": how much of what."""


class OpenVolume(Protocol):
    """A volume that is open: its background work goes on. Methods raise `HybrisError` or `OSError`."""

    @property
    def name(self) -> str: ...
    @property
    def mountpoint(self) -> Path | None:
        """None as well when somebody else unmounted it."""

    def mount(self, directory: Path, *, allow_other: bool = False) -> None: ...
    def unmount(self, *, lazy: bool = False) -> None: ...
    def status(self) -> dict[str, Any]: ...
    def sync(self, timeout: float | None, progress: Callable[[int, int], None]) -> bool: ...
    def drop_cache(self) -> dict[str, int]: ...
    def fsck(self, *, clouds: bool, progress: Callable[[str, int, int], None]) -> Report: ...
    def close(self) -> None: ...


class VolumeKind(Protocol):
    """How volumes are made, found and opened."""

    def create(
        self, home: Home, name: str, clouds: Sequence[str], f: int | None, k: int | None
    ) -> Config: ...
    def open(self, home: Home, name: str) -> OpenVolume: ...
    def list(self, home: Home) -> Sequence[Config]: ...
