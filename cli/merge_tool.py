"""The program in which a person merges two versions of a file, and what it is given."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from cli.output import clean, shown
from hybrisfs.api.decisions import ComparedVersions
from hybrisfs.client import scratch_folder

__all__ = ["beside", "changed_by_tool", "difference", "kept"]

_VARIABLE: Final = "HYBRISFS_MERGE_TOOL"
_ARGUMENTS: Final = {
    "meld": ("--output=$MERGED", "$LOCAL", "$BASE", "$REMOTE"),
    "kdiff3": ("-o", "$MERGED", "$BASE", "$LOCAL", "$REMOTE"),
    "vimdiff": ("-f", "-c", "4wincmd w | wincmd J", "$LOCAL", "$BASE", "$REMOTE", "$MERGED"),
}
"""Of the programs that are known, the one that is preferred first."""
_OTHERS: Final = ("$LOCAL", "$BASE", "$REMOTE", "$MERGED")
_IN_TERMINAL: Final = "vimdiff"
_NAME: Final = re.compile(r"\$(?:(LOCAL|BASE|REMOTE|MERGED)\b|\{(LOCAL|BASE|REMOTE|MERGED)\})")
_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,12}")


@contextmanager
def beside() -> Iterator[Path]:
    """A folder that only this user can read; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hybrisfs-merge-", dir=scratch_folder()) as folder:
        yield Path(folder)


def kept(merged: Path) -> Path:
    """Move the work of a person out of the folder that is removed at the end, to a file beside it."""
    merged.chmod(0o600)
    return merged.rename(merged.parent.with_suffix(merged.suffix or ".merged"))


def difference(before: Path, after: Path, name: str) -> Iterator[str]:
    """The lines of a unified diff between two texts, for a terminal."""
    old, new = (path.read_bytes().decode().removesuffix("\n").split("\n") for path in (before, after))
    lines = difflib.unified_diff(old, new, shown(name), f"{shown(name)} (merged)", lineterm="")
    for line in lines:
        yield clean(line)


def changed_by_tool(folder: Path, found: ComparedVersions, command: str | None) -> Path:
    """Let a person merge the two versions that are in *folder*. Returns the file that has the result.

    Raises ClickException when there are more than two, or no program, or it failed or changed nothing.
    """
    if len(found.versions) != 2:
        raise click.ClickException(
            f"{shown(found.path)} has {len(found.versions)} versions, and {found.why}: "
            "rename those that you want to merge later, or keep one of them"
        )
    files = _files(folder, found)
    words = _words(command, files, found)
    begun = files["MERGED"].read_bytes()
    try:
        done = subprocess.run(words, env={**os.environ, **_texts(files)}, check=False)
    except OSError as error:
        raise click.ClickException(f"{shown(words[0])}: {error.strerror}") from error
    if done.returncode:
        raise click.ClickException(
            f"{shown(words[0])} ended with status {done.returncode}: nothing was changed"
        )
    merged = files["MERGED"]
    if merged.is_symlink() or not merged.is_file() or merged.read_bytes() == begun:
        raise click.ClickException(
            f"{shown(words[0])} has not changed MERGED: nothing was changed. "
            "hybrisfs conflicts keep keeps one version as it is"
        )
    return merged


def _files(folder: Path, found: ComparedVersions) -> dict[str, Path]:
    """The files by their names in commands. Without a version before both, BASE is empty."""
    suffix = Path(found.path).suffix
    suffix = suffix if _SUFFIX.fullmatch(suffix) else ""
    files = {name: folder / f"{name}{suffix}" for name in ("LOCAL", "BASE", "REMOTE", "MERGED")}
    (folder / "0").rename(files["LOCAL"])
    (folder / "1").rename(files["REMOTE"])
    if found.base:
        (folder / "base").rename(files["BASE"])
    else:
        files["BASE"].touch(0o600)
    shutil.copyfile(files["LOCAL"], files["MERGED"])
    return files


def _texts(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: str(path) for name, path in files.items()}


def _words(command: str | None, files: Mapping[str, Path], found: ComparedVersions) -> list[str]:
    """The program and its arguments. No shell reads them: no name of a file is in them."""
    chosen = command or os.environ.get(_VARIABLE) or _installed()
    if chosen is None:
        raise click.ClickException(
            f"{shown(found.path)} is not merged without you: {found.why}. "
            f"No program for merging was found that can run here: "
            f"name one with --tool or {_VARIABLE}, or use hybrisfs conflicts keep"
        )
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise click.UsageError(f"{shown(chosen)} is not a command: {error}") from None
    if not words or not words[0]:
        raise click.UsageError("the command of the tool is empty")
    if not any(_NAME.search(word) for word in words):
        words += _ARGUMENTS.get(Path(words[0]).name, _OTHERS)
    return _filled(words, _texts(files))


def _filled(words: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    return [_NAME.sub(lambda found: texts[found[1] or found[2]], word) for word in words]


def _installed() -> str | None:
    has_windows = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    for name in _ARGUMENTS:
        if (has_terminal if name == _IN_TERMINAL else has_windows) and shutil.which(name):
            return name
    return None
