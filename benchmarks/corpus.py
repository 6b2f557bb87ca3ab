"""A tree that looks like the source of a large program, the same bytes on every machine.

Modelled on the Go source tree: 11,478 files, 157 MB, half of the files under 4.5 KB and a few of megabytes,
text that a compressor shrinks about fourfold. Made once from a fixed seed and kept outside the repository.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cache_directory", "git_repository", "source_tree", "work_folder", "write_random_files"]

_GENERATION = 1
"""Part of the cached names: raise it when anything below changes what is generated."""

_MEAN_BYTES = 13_700
_MEDIAN_BYTES = 4_500
_SIGMA = 1.49  # of the logarithm; exp(sigma^2 / 2) = mean / median
_LARGEST_BYTES = 3_000_000
_FILES_PER_FOLDER = 9
_EPOCH = 1_700_000_000

_KEYWORDS = ["break", "case", "const", "continue", "defer", "else", "func", "if", "import", "interface"]
_KEYWORDS += ["package", "range", "return", "struct", "type", "var", "nil", "err", "string", "int", "byte"]
_TEMPLATES = (
    "\tif {0} != nil {{",
    "\t\treturn {0}, {1}",
    "\t{0} := {1}.{2}({0})",
    "\t{0}.{1} = {2}",
    "func ({0} *{1}) {2}({3} {4}) error {{",
    "// {1} reports whether the {2} of {0} has been {3} by the last {4}.",
    "\tcase {0}.{1}:",
    "\tfor {0}, {1} := range {2}.{3} {{",
    "}}\n",
    "\t}}",
    '\t\tt.Errorf("{0}: got %v, want %v", {1}, {2})',
    "type {0} struct {{ {1} {2} }}",
)
_SUFFIXES = (".go", ".go", ".go", ".go", "_test.go", ".s", ".txt", ".md", ".c", ".h")


def cache_directory() -> Path:
    """Where generated trees and working folders live: below XDG_CACHE_HOME, on a real disk."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hybrisfs-benchmarks"


def source_tree(files: int) -> Path:
    """The tree of `files` files, generated unless it is there from an earlier run."""
    return _cached(f"tree-{_GENERATION}-{files}", lambda target: _write_tree(target, files, seed=1))


def git_repository(files: int, commits: int = 20) -> Path:
    """A repository of `files` files and `commits` commits; no file of it is equal to one of `source_tree`."""
    return _cached(f"git-{_GENERATION}-{files}-{commits}", lambda target: _write_git(target, files, commits))


def write_random_files(folder: Path, files: int) -> int:
    """Write files that nobody can compress, of 10 KB on average, 100 to a folder; returns their bytes."""
    source, total = random.Random(4), 0
    for number in range(files):
        parent = folder / f"{number // 100:04}"
        parent.mkdir(parents=True, exist_ok=True)
        size = source.randrange(20_000)
        (parent / f"file-{number:05}").write_bytes(source.randbytes(size))
        total += size
    return total


@contextmanager
def work_folder(name: str) -> Iterator[Path]:
    """An empty folder for a benchmark, on the disk of the corpora. It is removed at the end."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=f"work-{name}-", dir=cache_directory()))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    target = cache_directory() / name
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.rename(target)
    return target


class _Author:
    """Writes text that compresses like source code: few words per file, many lines seen before."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._syllables = [
            self.random.choice("bcdfghjklmnprstvw")
            + self.random.choice("aeiou")
            + self.random.choice("lmnrst ")
            for _ in range(200)
        ]
        self._words = [self.word() for _ in range(20_000)]

    def word(self) -> str:
        parts = [s.strip() for s in self.random.choices(self._syllables, k=self.random.randint(1, 4))]
        return parts[0] + "".join(part.capitalize() for part in parts[1:])

    def name(self) -> str:
        return self.word().lower()

    def size(self) -> int:
        size = self.random.lognormvariate(0.0, _SIGMA) * _MEDIAN_BYTES
        return int(min(size, _LARGEST_BYTES))

    def text(self, size: int) -> bytes:
        """`size` bytes; about a third of the lines occur once, the others again and again."""
        choose = self.random.choices
        words = choose(self._words, k=max(12, min(400, size // 150))) + _KEYWORDS
        wanted = size // 28 + 1  # a line is about 28 bytes
        lines = [
            template.format(*choose(words, k=5)) for template in choose(_TEMPLATES, k=max(4, wanted * 2 // 5))
        ]
        out = list(lines)
        while (length := sum(map(len, out)) + len(out)) < size:
            out += choose(lines, k=(size - length) // 20 + 8)
        self.random.shuffle(out)
        return "\n".join(out).encode()[: max(size - 1, 0)] + b"\n"[:size]


def _folders(author: _Author, count: int) -> list[Path]:
    """`count` relative folders, nested like packages in packages."""
    folders = [Path("src")]
    known = set(folders)
    while len(folders) < count:
        parent = author.random.choice(folders[-60:] if author.random.random() < 0.7 else folders)
        child = parent / author.name()
        if len(child.parts) <= 8 and child not in known:
            known.add(child)
            folders.append(child)
    return folders


def _write_tree(target: Path, files: int, seed: int) -> None:
    author = _Author(seed)
    folders = _folders(author, max(1, files // _FILES_PER_FOLDER))
    sizes = [author.size() for _ in range(files)]
    scale = _MEAN_BYTES * files / sum(sizes)
    for number, size in enumerate(sizes):
        folder = target / author.random.choice(folders)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{author.name()}{number}{author.random.choice(_SUFFIXES)}"
        path.write_bytes(author.text(int(size * scale)))
        path.chmod(0o755 if author.random.random() < 0.02 else 0o644)
        stamp = (_EPOCH + author.random.randrange(10_000_000)) * 10**9 + author.random.randrange(10**9)
        os.utime(path, ns=(stamp, stamp))


def _write_git(target: Path, files: int, commits: int) -> None:
    author = _Author(seed=2)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(target),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _IDENTITY.items()
        },
    }

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=target, env=environment, check=True, capture_output=True)

    _write_tree(target, files, seed=3)
    paths = sorted(path for path in target.rglob("*") if path.is_file())
    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message", "Import")
    for number in range(1, commits):
        for path in author.random.sample(paths, k=max(1, files // 100)):
            path.write_bytes(path.read_bytes() + author.text(200))
        git("commit", "--quiet", "--all", "--message", f"Change {number}")
    git("gc", "--quiet")


_IDENTITY = {"NAME": "Bench", "EMAIL": "bench@example.org", "DATE": f"{_EPOCH} +0000"}
