"""Settings that hold on all devices of a volume: labels of its root (`hybrisfs.registers.labels`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hybrisfs.errors import UsageError
from hybrisfs.merge.signing import explaining_refusal
from hybrisfs.registers.labels import LEAST_ANNOUNCE, MERGE_OFF, MOST_ARCHIVE_DAYS, ArchiveAsked
from hybrisfs.settings.settings import Settings
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from sync.follow import ANNOUNCE_SECONDS

__all__ = ["Agreed"]

_CODE: Final = re.compile(r"([1-9][0-9]?)\+([0-9]{1,2})")
_DAYS: Final = re.compile(r"([1-9][0-9]{0,3})([dwmy])")
_UNITS: Final = {"d": 1, "w": 7, "m": 31, "y": 366}
_LONGEST: Final = int(ANNOUNCE_SECONDS)


def _parse_days(text: str) -> int | None:
    if text == "off":
        return None
    found = _DAYS.fullmatch(text)
    days = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if not 1 <= days <= MOST_ARCHIVE_DAYS:
        raise UsageError(
            f"{text[:80]!r} is not a time after which to archive",
            "",
            f'Write for example "30d", "8w", "6m", at most {MOST_ARCHIVE_DAYS} days, or "off".',
        )
    return days


class Agreed:
    """Those of one volume. The methods may be called from any thread, without the volume's lock; those that
    change something raise HybrisError or OSError."""

    def __init__(self, fs: FileSystem, committer: Committer, settings: Settings) -> None:
        self._settings = settings
        self._fs = fs
        self._committer = committer

    @property
    def announce_seconds(self) -> int:
        """How often each device says at least that it is there."""
        with self._fs.state.transaction() as tx:
            return int(self._fs.labels.announce_seconds(tx))

    def announce_every(self, seconds: int) -> None:
        """Let each device say so often at least that it is there. Raises UsageError."""
        if not LEAST_ANNOUNCE <= seconds <= _LONGEST:
            raise UsageError(
                f"machines cannot announce themselves every {seconds} seconds",
                f"{LEAST_ANNOUNCE} to {_LONGEST} are possible",
            )
        self._change(lambda tx, root: self._fs.labels.ask_for_announcements(tx, root, seconds))

    @property
    def merge_texts(self) -> bool:
        """Whether texts that were changed in different places are merged unasked."""
        with self._fs.state.transaction() as tx:
            return self._fs.labels.may_merge(tx, self._fs.inodes.get(tx, ROOT_INO))

    def set_merge_texts(self, wanted: bool) -> None:
        """Let that be so, or not."""
        labels = self._fs.labels
        change = labels.remove if wanted else labels.add
        self._change(lambda tx, root: change(tx, root, [MERGE_OFF]))

    @property
    def archive_after(self) -> str:
        """After how many days of rest something is archived, "30d"; "off" for never."""
        asked = self._archive_asked()
        return "off" if asked is None or asked.days is None else f"{asked.days}d"

    @property
    def archive_code(self) -> str:
        """The code of the archive, "4+1": any 4 of 5 clouds are enough to read; or "auto"."""
        asked = self._archive_asked()
        return "auto" if asked is None or asked.k is None else f"{asked.k}+{self._settings.config.f}"

    def archive(self, after: str | None, code: str | None) -> None:
        """Let all devices archive so; None leaves one as it is. Raises UsageError."""
        before = self._archive_asked() or ArchiveAsked(None, None)
        asked = ArchiveAsked(
            before.days if after is None else _parse_days(after),
            before.k if code is None else self._parse_code(code),
        )
        if asked != before:
            self._change(lambda tx, root: self._fs.labels.ask_for_archive(tx, root, asked))

    def _archive_asked(self) -> ArchiveAsked | None:
        with self._fs.state.transaction() as tx:
            return self._fs.labels.archive_asked(tx)

    def _parse_code(self, text: str) -> int | None:
        config = self._settings.config
        if text == "auto":
            return None
        found = _CODE.fullmatch(text)
        if found is None:
            raise UsageError(f"{text[:80]!r} is not a code", "", 'Write for example "4+1", or "auto".')
        k, f, clouds = int(found[1]), int(found[2]), sum(not one.draining for one in config.clouds)
        if f != config.f:
            raise UsageError(
                f"the archive survives the loss of as many clouds as the rest: {config.f}, not {f}",
                "",
                "hybrisfs volume redundancy changes that for both.",
            )
        if k <= config.k:
            raise UsageError(f"{k}+{f} takes no less room than what is not archived, {config.k}+{f}")
        if k + f > clouds:
            raise UsageError(f"{k}+{f} takes {k + f} clouds", f"the volume has {clouds}")
        return k

    def _change(self, change: Callable[[Transaction, Inode], None]) -> None:
        with self._fs.state.transaction() as tx, explaining_refusal(read_only=self._fs.read_only):
            change(tx, self._fs.inodes.get(tx, ROOT_INO))
        self._committer.commit_now()
