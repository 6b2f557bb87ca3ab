"""Names that are not mirrored: files that programs leave behind while they save, and what the user's patterns
match.

Patterns are those of gitignore(5), relative to the mirror. The same names are left alone on both sides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from pathspec import GitIgnoreSpec

from hybrisfs.errors import UsageError

__all__ = ["MARKER", "TEMPORARY", "Ignored"]

MARKER: Final = b".hybrisfs-mirror"
"""The file by which a mirror knows its folder."""

TEMPORARY: Final = MARKER + b"-"
"""What the names of files in the making begin with."""

_PASSING: Final = re.compile(
    rb"""
    \.hybrisfs-mirror.*      # our own
    | 4913                   # vim tries whether it can write
    | \..*\.sw[a-z]          # vim
    | .*~                    # backups of many editors
    | \.goutputstream-.*     # GLib, while it saves
    | \.\#.* | \#.*\#        # Emacs: locks, automatic saves
    | ~\$.* | \.~lock\..*\#  # locks of office programs
    | .*\.kate-swp
    | \.nfs[0-9a-f]{16,} | \.fuse_hidden.*  # deleted, but open
    """,
    re.VERBOSE | re.DOTALL,
)


class Ignored:
    """What a mirror leaves alone. Raises UsageError for patterns that are none."""

    def __init__(self, patterns: Sequence[str]) -> None:
        try:
            self._spec = GitIgnoreSpec.from_lines(patterns) if patterns else None
        except ValueError as error:
            raise UsageError("cannot understand a pattern to ignore", str(error)) from error

    def __contains__(self, path: tuple[bytes, bool]) -> bool:
        """Whether a path, a directory if the second says so, is left alone."""
        name, is_directory = path
        if _PASSING.fullmatch(name.rpartition(b"/")[2]):
            return True
        return self._spec is not None and self._spec.match_file(
            os.fsdecode(name) + ("/" if is_directory else "")
        )
