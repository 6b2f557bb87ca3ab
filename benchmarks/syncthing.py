"""Syncthing between two machines of a test network, as the peer that replication is compared with.

Its devices know each other's addresses; relays, global discovery and reports are off; changes are looked for
after the shortest time that it has (1 s); it runs at normal priority.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from xml.etree import ElementTree

__all__ = ["Syncthing", "version"]

_PORT = 22000
_OPTIONS = {
    "globalAnnounceEnabled": "false",
    "localAnnounceEnabled": "false",
    "relaysEnabled": "false",
    "natEnabled": "false",
    "startBrowser": "false",
    "urAccepted": "-1",
    "crashReportingEnabled": "false",
    "autoUpgradeIntervalH": "0",
    "reconnectionIntervalS": "1",
    "setLowPriority": "false",
}


def version() -> str | None:
    """What is installed, or None."""
    if shutil.which("syncthing") is None:
        return None
    said = subprocess.run(["syncthing", "--version"], capture_output=True, text=True, check=True).stdout
    return " ".join(said.split()[:2])


class Syncthing:
    """One device with one folder; as a context manager it runs within the block, from `start` on."""

    def __init__(self, root: Path, address: str, run_as: Sequence[str]) -> None:
        """`run_as` is the command prefix that runs a program on the machine with that IP address."""
        self.folder = root / "folder"
        self.folder.mkdir(parents=True)
        self._root = root
        self._home = root / "home"
        self._address = address
        self._run_as = list(run_as)
        self._process: subprocess.Popen[bytes] | None = None
        self._call("generate", f"--home={self._home}")
        # Among the certificate's data is the device's name.
        self._config = ElementTree.parse(self._home / "config.xml")
        device = self._config.getroot().find("device")
        assert device is not None
        self.device_id = str(device.get("id"))

    def __enter__(self) -> Syncthing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    @property
    def pids(self) -> list[int]:
        """The process, while it runs."""
        return [self._process.pid] if self._process is not None else []

    def share(self, other: Syncthing) -> None:
        """Share the folder with the other device, from the next start on."""
        root = self._config.getroot()
        for old in [*root.findall("folder"), *root.findall("device")]:
            root.remove(old)
        for option, value in _OPTIONS.items():
            self._set(root, f"options/{option}", value)
        self._set(root, "options/listenAddress", f"tcp://{self._address}:{_PORT}")
        self._set(root, "gui/address", "127.0.0.1:8384")
        for one in (self, other):
            device = ElementTree.SubElement(root, "device", id=one.device_id, name=one._address)
            ElementTree.SubElement(device, "address").text = f"tcp://{one._address}:{_PORT}"
        folder = ElementTree.SubElement(
            root,
            "folder",
            {
                "id": "bench",
                "path": str(self.folder),
                "type": "sendreceive",
                "rescanIntervalS": "3600",
                "fsWatcherEnabled": "true",
                "fsWatcherDelayS": "1",
            },
        )
        for one in (self, other):
            ElementTree.SubElement(folder, "device", id=one.device_id)
        self._config.write(self._home / "config.xml")

    def start(self) -> None:
        """Run."""
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._run_as, "syncthing", "serve", f"--home={self._home}", "--no-browser", "--no-restart"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _call(self, *words: str) -> None:
        subprocess.run(["syncthing", *words], env=self._environment(), check=True, capture_output=True)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._root), "STNOUPGRADE": "1"}

    @staticmethod
    def _set(root: ElementTree.Element, path: str, value: str) -> None:
        found = root.find(path)
        if found is None:
            parent, _, name = path.rpartition("/")
            above = root.find(parent)
            assert above is not None
            found = ElementTree.SubElement(above, name)
        found.text = value
