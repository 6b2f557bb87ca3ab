"""The phases of a round. Each runs on one system, leaves its folder empty and returns figures by metric."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kernel import drop_caches
from benchmarks.processes import cpu_seconds, rss_mib
from benchmarks.systems import CloudUse, System

__all__ = ["PHASES", "Figures", "Work"]

Figures = dict[str, float]

_MIB = 1 << 20
_PAGE = 4096


@dataclass(frozen=True)
class Work:
    """How much to do: the tree to copy, the repository to clone, and sizes."""

    tree: Path
    repository: Path
    files: int
    stream_bytes: int
    random_operations: int

    @classmethod
    def full(cls, tree: Path, repository: Path) -> Work:
        return cls(tree, repository, files=5000, stream_bytes=1 << 30, random_operations=4000)

    @classmethod
    def small(cls, tree: Path, repository: Path) -> Work:
        return cls(tree, repository, files=300, stream_bytes=32 * _MIB, random_operations=200)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _rate(names: list[str], action: Callable[[str], object]) -> float:
    """How often per second `action` ran, over all names."""

    def all_of_them() -> None:
        for name in names:
            action(name)

    return len(names) / _seconds(all_of_them)


def _run(*words: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)


def copy(system: System, work: Work) -> Figures:
    """`cp -a` of the whole tree, its source in memory."""
    for path in work.tree.rglob("*"):
        if path.is_file():
            path.read_bytes()
    target = system.folder / "tree"
    before, cpu = system.cloud_use(), cpu_seconds(system.daemon_pids())
    start = time.perf_counter()
    _run("cp", "-a", str(work.tree), str(target))
    figures = {"copy.return": time.perf_counter() - start}
    if system.has_clouds:
        system.wait_durable()
        figures["copy.durable"] = time.perf_counter() - start
        figures |= _added(before, system.cloud_use())
    if system.daemon_pids():
        figures["copy.cpu"] = cpu_seconds(system.daemon_pids()) - cpu
        figures["copy.rss"] = rss_mib(system.daemon_pids())
    shutil.rmtree(target)
    return figures


def _added(before: Iterable[CloudUse], after: Iterable[CloudUse]) -> Figures:
    """What came to the cloud that got most."""
    grown = [
        (new.objects - old.objects, new.bytes - old.bytes) for old, new in zip(before, after, strict=True)
    ]
    return {
        "copy.packs": max(objects["packs"] for objects, _ in grown),
        "copy.log": max(objects["log"] for objects, _ in grown),
        "copy.other": max(objects.total() - objects["packs"] - objects["log"] for objects, _ in grown),
        "copy.packs_mb": max(size["packs"] for _, size in grown) / 1e6,
        "copy.log_mb": max(size["log"] for _, size in grown) / 1e6,
    }


def files(system: System, work: Work) -> Figures:
    """Small files in one folder, one operation at a time."""
    folder = system.folder / "files"
    folder.mkdir()
    names = [str(folder / f"file-{number:05}") for number in range(work.files)]
    renamed = [str(folder / f"moved-{number:05}") for number in range(work.files)]
    content = iter([os.urandom(_PAGE) for _ in names])

    def create(name: str) -> None:
        with open(name, "wb", buffering=0) as file:
            file.write(next(content))

    def read(name: str) -> None:
        with open(name, "rb", buffering=0) as file:
            file.read(_PAGE)

    def listing() -> None:
        if len(os.listdir(folder)) != work.files:  # noqa: PTH208 - the call that is measured
            raise RuntimeError(f"{system.name} lists a wrong number of files")

    figures = {"files.create": _rate(names, create)}
    system.wait_durable()
    drop_caches()
    figures["files.readdir_cold"] = _seconds(listing) * 1000
    figures["files.readdir_warm"] = _seconds(listing) * 1000
    drop_caches()
    figures["files.stat_cold"] = _rate(names, os.stat)
    figures["files.stat_warm"] = _rate(names, os.stat)
    _rate(names, read)
    figures["files.read_warm"] = _rate(names, read)
    targets = dict(zip(names, renamed, strict=True))
    figures["files.rename"] = _rate(names, lambda name: os.rename(name, targets[name]))  # noqa: PTH104
    figures["files.unlink"] = _rate(renamed, os.unlink)
    folder.rmdir()
    return figures


def git(system: System, work: Work) -> Figures:
    """Clone a repository, ask for its status, and check out an earlier commit."""
    clone = system.folder / "clone"
    status = ("git", "-C", str(clone), "status", "--short")
    figures = {
        "git.clone": _seconds(
            lambda: _run("git", "clone", "--quiet", "--no-hardlinks", str(work.repository), str(clone))
        )
    }
    system.wait_durable()
    _run(*status)  # refreshes the index once, as after any clone
    drop_caches()
    figures["git.status_cold"] = _seconds(lambda: _run(*status)) * 1000
    figures["git.status_warm"] = _seconds(lambda: _run(*status)) * 1000
    earlier = ("git", "-C", str(clone), "checkout", "--quiet", "HEAD~15")
    figures["git.checkout"] = _seconds(lambda: _run(*earlier))
    shutil.rmtree(clone)
    return figures


def stream(system: System, work: Work) -> Figures:
    """One large file of random bytes, in requests of 1 MiB; then single pages of it."""
    path = system.folder / "large"
    content = memoryview(os.urandom(work.stream_bytes))

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for offset in range(0, len(content), _MIB):
                file.write(content[offset : offset + _MIB])
            os.fsync(file.fileno())

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.read(_MIB):
                pass

    megabytes = work.stream_bytes / 1e6
    figures = {"stream.write": megabytes / _seconds(write)}
    content.release()
    system.wait_durable()
    drop_caches()
    figures["stream.read_cold"] = megabytes / _seconds(read)
    figures["stream.read_warm"] = megabytes / _seconds(read)
    figures |= _random_access(path, work)
    path.unlink()
    figures["stream.small_writes"] = _small_writes(path, work)
    system.wait_durable()
    path.unlink()
    return figures


def _small_writes(path: Path, work: Work) -> float:
    """MB/s of pages one after the other, without a sync."""
    page = os.urandom(_PAGE)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(work.stream_bytes // 16 // _PAGE):
                file.write(page)

    return work.stream_bytes / 16 / 1e6 / _seconds(write)


def _random_access(path: Path, work: Work) -> Figures:
    pages = random.Random(7).sample(range(work.stream_bytes // _PAGE), k=work.random_operations)
    page = os.urandom(_PAGE)
    drop_caches()
    descriptor = os.open(path, os.O_RDWR)

    took: list[float] = []

    def read() -> None:
        for number in pages:
            begun = time.perf_counter()
            os.pread(descriptor, _PAGE, number * _PAGE)
            took.append(time.perf_counter() - begun)

    def write() -> None:
        for number in pages[: len(pages) // 4]:
            os.pwrite(descriptor, page, number * _PAGE)
            os.fsync(descriptor)

    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return {
            "random.read": len(pages) / _seconds(read),
            "random.read_p99": sorted(took)[len(took) * 99 // 100] * 1e6,
            "random.write_fsync": len(pages) // 4 / _seconds(write),
        }
    finally:
        os.close(descriptor)


PHASES: dict[str, Callable[[System, Work], Figures]] = {
    "copy": copy,
    "files": files,
    "git": git,
    "stream": stream,
}
