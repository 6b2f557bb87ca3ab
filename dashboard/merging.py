"""What `hybrisfs conflicts merge` does, in two steps: what would become of the versions, and that it does."""

from __future__ import annotations

import difflib
import itertools
import tempfile
from pathlib import Path
from typing import Final

from dashboard.actions import ask
from hybrisfs.api.decisions import ConflictsCompareRequest, ConflictsSettleRequest
from hybrisfs.client import Message, UsageError, scratch_folder

__all__ = ["merge"]

_LARGEST: Final = 1 << 20  # bytes of a text whose difference is shown; finding it takes long
_LINES: Final = 500  # of the difference


def merge(volume: str, path: str, mark: str | None) -> Message:
    """Without a mark: the versions of a file that are in conflict, whether they can be merged, or why not,
    and what that would change. With the mark of such an answer: merge them, if they are still the same.

    Raises HybrisError.
    """
    with tempfile.TemporaryDirectory(prefix="hybrisfs-merge-", dir=scratch_folder()) as name:
        folder = Path(name)
        found = ask(ConflictsCompareRequest(name=volume, path=path, into=name))
        merged = folder / "merged"
        if mark is None:
            lines = _difference(folder / "0", merged) if found.merged else []
            return {
                "path": found.path,
                "versions": found.versions,
                "merged": found.merged,
                "why": found.why,
                "mark": found.mark,
                "difference": None if lines is None else lines[:_LINES],
                "more": lines is not None and len(lines) > _LINES,
            }
        if not found.merged or found.mark != mark:
            raise UsageError("the versions are not those that were shown", "", "Look again.")
        ask(ConflictsSettleRequest(name=found.name, path=found.path, mark=mark, source=str(merged)))
        return {"path": found.path}


def _difference(before: Path, after: Path) -> list[str] | None:
    """The lines of a unified diff, without its head; None for texts that are too large."""
    if max(before.stat().st_size, after.stat().st_size) > _LARGEST:
        return None
    old, new = (path.read_bytes().decode().removesuffix("\n").split("\n") for path in (before, after))
    return list(itertools.islice(difflib.unified_diff(old, new, lineterm=""), 2, 3 + _LINES))
