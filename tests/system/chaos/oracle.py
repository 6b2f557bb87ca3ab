"""Is every content that was saved still there, and nothing that was not?"""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.system.chaos.record import Content, Record, digest
from tests.system.chaos.world import files_below

__all__ = ["judge_contents"]

_GLANCE = 0.05  # seconds between a program's last look and its replacing by name
_MOST_OVERTAKEN = 2


def judge_contents(record: Record, tree: Path) -> None:
    """Compare the contents below *tree*, on which all devices agree, with the account of the programs.

    No program can replace a name and know for certain what it replaces: between its last look and the rename
    another device's content may get there, and be shown. The record has the moments of both, so few contents
    that stood under such a name are taken for overtaken, if the look was that short a time ago.
    """
    found: dict[str, Path] = {}
    for path in files_below(tree):
        try:
            found[digest(path.read_bytes())] = path.relative_to(tree)
        except OSError as error:
            record.find("lost", f"{path} cannot be read: {error}")
    owed = record.owed()
    lost = {name: content for name, content in owed.items() if name not in found}
    overtaken = [name for name, content in lost.items() if _was_overtaken(record, content)]
    for name in overtaken[:_MOST_OVERTAKEN]:
        record.operation("oracle", "overtaken", name, lost[name])
        del lost[name]
    for name, content in lost.items():
        record.find(
            "lost",
            f"{name}, {content.size} bytes, which {content.device} made durable as {content.path!r} at "
            f"{content.at:.2f}, is nowhere in the tree; {_elsewhere(tree, name)}",
        )
    for name, path in found.items():
        if not record.is_known(name):
            record.find("strange", f"{path} holds {name}, {(tree / path).stat().st_size} bytes")
    record.operation("oracle", len(owed), "contents owed,", len(lost), "lost,", len(overtaken), "overtaken")
    record.counts["contents owed"] = len(owed)
    record.counts["overtaken"] += len(overtaken)


def _was_overtaken(record: Record, content: Content) -> bool:
    base = Path(content.path).name
    return any(
        one.done - one.looked < _GLANCE
        and one.device != content.device
        and content.at < one.done
        and Path(one.path).name == base
        for one in record.overtaken
    )


def _elsewhere(tree: Path, name: str) -> str:
    """Whether a version of the volume still has it: a content that is under no name may not be gone."""
    mount = tree.parent
    with contextlib.suppress(OSError):
        for path in files_below(mount / ".hybrisfs" / "versions"):
            with contextlib.suppress(OSError):
                if digest(path.read_bytes()) == name:
                    return f"it is a version, {path.relative_to(mount)}"
    return "nor in any version"
