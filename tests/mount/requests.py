"""The requests with which the kernel asks a mount for what programs do, counted by their kind.

`python -m tests.mount.requests` prints the table of docs/internals/mount.md. Not counted are those that no
program waits for (FORGET) and FLUSH, which the kernel sends once: the answer is that nothing is to be done.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from hybrisfs import fuse
from hybrisfs.mount.versions import VersionsAdapter
from tests.volume.device import Device

__all__ = ["FILES", "OPERATIONS", "Operation", "counted", "requests_of"]

FILES: Final = 10
"""As many files does each operation treat, or as many writes are there."""
_BLOCK: Final = b"x" * 4096
_UNCOUNTED: Final = frozenset({"init", "destroy", "forget", "statfs"})
_GIT: Final = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0")


def _counting(counts: Counter[str]) -> type[VersionsAdapter]:
    """The mount's handlers; each counts its requests."""

    def counting(name: str) -> Callable[..., Any]:
        handler = getattr(VersionsAdapter, name)

        def handle(self: VersionsAdapter, *arguments: Any) -> Any:
            counts[name] += 1
            return handler(self, *arguments)

        return handle

    names = [
        name
        for name, missing in vars(fuse.Operations).items()
        if name[0] != "_" and name not in _UNCOUNTED and getattr(VersionsAdapter, name) is not missing
    ]
    return type("Counting", (VersionsAdapter,), {name: counting(name) for name in names})


@contextmanager
def counted(root: Path) -> Iterator[tuple[Path, Counter[str]]]:
    """A volume is mounted below *root* while the block runs: where, and what was asked since."""
    counts: Counter[str] = Counter()
    mountpoint = root / "mnt"
    mountpoint.mkdir()
    device = Device(root)
    try:
        with mock.patch("hybrisfs.mount.mountpoint.VersionsAdapter", _counting(counts)):
            device.volume.mount(mountpoint)
        yield mountpoint, counts
    finally:
        device.close()


# -- what programs do -----------------------------------------------------------------------------------


class Operation(NamedTuple):
    """What is *done* to *FILES* files of a folder, once *prepared*; both get the folder and one outside."""

    name: str
    done: Callable[[Path, Path], object]
    prepared: Callable[[Path, Path], object] = lambda folder, outside: None


def requests_of(operation: Operation, root: Path, mountpoint: Path, counts: Counter[str]) -> dict[str, float]:
    """The requests of each kind per file, in a folder of its own below *mountpoint*. *root*: a folder outside
    of it."""
    name = operation.name.replace(" ", "-")
    folder, outside = mountpoint / name, root / name
    folder.mkdir()
    outside.mkdir()
    operation.prepared(folder, outside)
    os.statvfs(folder)  # comes after all requests that nobody waits for, as RELEASE
    counts.clear()
    operation.done(folder, outside)
    os.statvfs(folder)
    return {kind: number / FILES for kind, number in counts.items()}


def _files(folder: Path) -> list[Path]:
    return [folder / f"file-{number}" for number in range(FILES)]


def _make(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        path.write_bytes(_BLOCK)


def _overwrite(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        path.write_bytes(_BLOCK)


def _read(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        path.read_bytes()


def _stat(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        path.stat()


def _write_in_blocks(folder: Path, _outside: Path) -> None:
    with (folder / "file").open("wb", buffering=0) as file:
        for _ in range(FILES):
            file.write(_BLOCK)


def _rename(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        path.rename(path.with_suffix(".new"))


def _unlink(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        path.unlink()


def _give_away(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        os.chown(path, os.geteuid(), os.getegid())


def _save(folder: Path, _outside: Path) -> None:
    for path in _files(folder):
        new = path.with_suffix(".tmp")
        with new.open("wb") as file:
            file.write(_BLOCK)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(path.stat().st_mode)
        new.rename(path)


def _run(*command: str | Path) -> None:
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
    )


def _make_outside(_folder: Path, outside: Path) -> None:
    (outside / "tree").mkdir()
    _make(outside / "tree", outside)
    _run("tar", "cf", outside / "tree.tar", "-C", outside, "tree")


def _commit_twice(folder: Path, outside: Path) -> None:
    _run(*_GIT, "init", "-q", folder)
    for text in ("one\n", "two\n"):
        for path in _files(folder):
            path.write_text(text + path.name)
        _run(*_GIT, "-C", folder, "add", ".")
        _run(*_GIT, "-C", folder, "commit", "-qm", text)
    _run(*_GIT, "-C", folder, "repack", "-adq")


OPERATIONS: Final = (
    Operation("create, write 4 KiB, close", _make),
    Operation("write 4 KiB more", _write_in_blocks),
    Operation("overwrite", _overwrite, _make),
    Operation("open, read, close", _read, _make),
    Operation("stat", _stat, _make),
    Operation("rename", _rename, _make),
    Operation("unlink", _unlink, _make),
    Operation("chown", _give_away, _make),
    Operation("save as editors do", _save, _make),
    Operation("cp -a", lambda folder, outside: _run("cp", "-a", outside / "tree", folder), _make_outside),
    Operation(
        "tar x", lambda folder, outside: _run("tar", "xf", outside / "tree.tar", "-C", folder), _make_outside
    ),
    Operation(
        "git checkout",
        lambda folder, outside: _run(*_GIT, "-C", folder, "checkout", "-q", "HEAD~"),
        _commit_twice,
    ),
)


def main() -> int:
    print("| what | requests | which |\n| --- | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with counted(root) as (mountpoint, counts):
            for operation in OPERATIONS:
                found = requests_of(operation, root, mountpoint, counts)
                kinds = ", ".join(
                    kind.upper() if number == 1 else f"{number:.1f} {kind.upper()}"
                    for kind, number in found.items()
                )
                print(f"| {operation.name} | {sum(found.values()):.1f} | {kinds} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
