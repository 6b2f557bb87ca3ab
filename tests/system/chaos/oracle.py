"""Is every content that was saved still there, and nothing that was not?"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tests.system.chaos.record import Content, Record, digest
from tests.system.chaos.world import files_below

__all__ = ["judge_contents"]

_SECONDS_AFTER = 15.0
_SEARCH_SECONDS = 20.0


def judge_contents(record: Record, trees: list[Path]) -> None:
    """Compare the contents below *trees*, one if all devices agree, with the account of the programs.

    What was written to an open file stands in the volume's root, if its folder was removed meanwhile.

    No program can replace a name and know for certain what it replaces: between its last look and the rename
    another device's content may get there, and be shown. Programs here take some ten microseconds for that,
    so that it does not happen in days; what is told of a lost content names who replaced such a name when.
    """
    found: dict[str, Path] = {}
    homeless = [path for tree in trees for path in tree.parent.iterdir() if path.is_file()]
    for path in (*homeless, *(path for tree in trees for path in files_below(tree))):
        try:
            found[digest(path.read_bytes())] = path
        except OSError as error:
            record.find("lost", f"{path} cannot be read: {error}")
    owed = record.owed()
    lost = {name: content for name, content in owed.items() if name not in found}
    for name, content in lost.items():
        durable = f"{name}, {content.size} bytes, durable on {content.device} at {content.at:.2f}"
        where = f"as {content.path!r}, is nowhere in the tree, {_elsewhere(trees[0], name)}"
        record.find("lost", f"{durable} {where}{_overtakers(record, content)}")
    for name, path in found.items():
        if not record.is_known(name):
            record.find("strange", f"{path} holds {name}, {path.stat().st_size} bytes")
    record.operation("oracle", len(owed), "contents owed,", len(lost), "lost")
    record.counts["contents owed"] += len(owed)


def _overtakers(record: Record, content: Content) -> str:
    """What other devices replaced or removed under such a name in the seconds after."""
    base = Path(content.path).name
    end = content.at + _SECONDS_AFTER
    return "".join(
        f"; {one.device} replaced or removed {one.path!r} at {one.done:.4f}, after a look at {one.looked:.4f}"
        for one in record.overtaken
        if one.device != content.device and content.at < one.done < end and Path(one.path).name == base
    )


def _elsewhere(tree: Path, name: str) -> str:
    """Whether a version of the volume still has it: a content that is under no name may not be gone."""
    mount, end = tree.parent, time.monotonic() + _SEARCH_SECONDS
    with contextlib.suppress(OSError):
        for path in files_below(mount / ".hybrisfs" / "versions" / tree.name):
            if time.monotonic() > end:
                return "nor found in a version in time"
            with contextlib.suppress(OSError):
                if digest(path.read_bytes()) == name:
                    return f"but a version, {path.relative_to(mount)}"
    return "nor in any version"
