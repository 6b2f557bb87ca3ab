"""A disk that forgets what was not synced: what a power cut leaves, by the letter of POSIX.

A file's bytes are there as of its last fsync or fdatasync, and its name only if its directory was synced
after the name was made. SQLite syncs its database file itself, unseen from here: that file counts as synced
when recording begins, and the test must not let it be checkpointed meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from hybrisfs.environment import SYSTEM, Environment, Limits

__all__ = ["ForgetfulDisk"]


class ForgetfulDisk:
    """Notes the syncs, which cost nothing, of all that is opened with its `environment`."""

    def __init__(self, root: Path, limits: Limits = SYSTEM.limits) -> None:
        """Watch the files below *root*, see `watch`."""
        self.environment = Environment(fsync=self.note_sync, fdatasync=self.note_sync, limits=limits)
        self.watch(root)

    def watch(self, root: Path) -> None:
        """Watch the files below *root* from now on, and no others; all that is there now counts as synced."""
        self.root = root
        self._bytes: dict[Path, bytes] = {}
        self._names: set[Path] = set()
        for path in root.rglob("*"):
            self._names.add(path)
            if path.is_file():
                self._bytes[path] = path.read_bytes()

    def note_sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if self.root not in (path, *path.parents):
            return
        if path.is_dir():
            self._names = {name for name in self._names if name.parent != path} | set(path.iterdir())
        else:
            self._bytes[path] = path.read_bytes()

    def image(self, target: Path) -> None:
        """Write what a power cut leaves into the empty directory *target*."""
        for path in sorted(self._names):
            copy = target / path.relative_to(self.root)
            if not copy.parent.is_dir() or path.name.endswith("-shm"):
                continue  # its directory has been forgotten
            if path in self._bytes or not path.is_dir():
                copy.write_bytes(self._bytes.get(path, b""))
            else:
                copy.mkdir()
