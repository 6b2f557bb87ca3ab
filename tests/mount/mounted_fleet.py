"""Devices in one process, the first of them mounted: tests say when it hears of what others do,
and when its kernel is told of that."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from unittest import mock

from hybrisfs.mount.adapter import Served
from hybrisfs.mount.mountpoint import MountPoint
from hybrisfs.mount.programs import NoFetchPrograms
from hybrisfs.read.freshness import Freshness
from hybrisfs.stages import Stage
from hybrisfs.tree.unseen import Change
from hybrisfs.versions.browser import VersionBrowser
from tests.merge.fleet import Device, Fleet
from tests.system.deadline import until
from tests.versions.support import UsualRetention

__all__ = ["MountedFleet"]

_PATIENCE: Final = 30.0


class _Heard:
    """No device is suspect."""

    def are_suspect(self) -> bool:
        return False

    def look_now(self) -> None:
        """There is nothing to look at."""


class MountedFleet:
    """`here` is mounted at `root`, `there` is another device."""

    def __init__(self, directory: Path, devices: int = 2) -> None:
        self.root = directory
        self.fleet = Fleet(devices)
        self.here: Device = self.fleet[0]
        self.there: Device = self.fleet[1]
        rig = self.here.rig
        committing = Stage("commit", rig.committer.step, rig.committer.wait)
        self._committing = threading.Thread(target=committing.run, args=(rig.signals, lambda error: False))
        self._committing.start()
        served = Served(
            rig.fs,
            rig.committer,
            rig.fetcher,
            rig.room,
            rig.reading.residency,
            Freshness(_Heard(), rig.environment),
            rig.sharing.sparing,
            NoFetchPrograms(()),
            VersionBrowser(rig.fs, rig.fetcher, UsualRetention()),
        )
        self._mount = MountPoint("vol", directory, served)

    def close(self) -> None:
        self._mount.unmount(lazy=True)
        self.here.rig.committer.stop()
        self._committing.join()
        self.fleet.discard()

    def arrive(self) -> list[Change]:
        """What was done elsewhere is taken in here; what the kernel is to hear of that."""
        del self.here.rig.shown[:]
        for device in self.fleet.devices[1:]:
            device.sign()
            self.here.receive(device.log())
        return list(self.here.rig.shown)

    def tell(self, changes: Sequence[Change]) -> None:
        """Have the kernel told, and wait until it has been."""
        notifier, begun = self._mount._notifier, threading.Event()
        drop = notifier._drop_stale

        def dropping(some: Iterable[Change]) -> None:
            begun.set()
            drop(some)

        with mock.patch.object(notifier, "_drop_stale", dropping):
            notifier.notify(changes)
            assert begun.wait(_PATIENCE)
            with notifier.at_rest():
                pass

    def have_forgotten(self, path: str) -> None:
        """Have the kernel forget a folder, which takes root, and wait until that has been heard of."""
        ino = self.here.at(path).ino
        assert self._mount._adapter.knows(ino)

        def is_forgotten() -> bool:
            Path("/proc/sys/vm/drop_caches").write_text("2")  # names and inodes
            return not self._mount._adapter.knows(ino)

        until(is_forgotten, "the folder to be forgotten", _PATIENCE)

    def meet(self) -> dict[str, bytes]:
        """The content of all files once all have heard of all; all show the same."""
        self.fleet.meet()
        trees = [device.tree() for device in self.fleet.devices]
        assert all(tree == trees[0] for tree in trees)
        return {path: one.content for path, one in trees[0].items() if one.content}
