"""What of a folder is not mirrored: ignored names, and the marker by which a mirror recognises it.

Patterns are those of gitignore(5), relative to the mirror. The same names are left alone on both sides.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hybrisfs.environment import Environment
from hybrisfs.errors import UsageError

__all__ = ["MARKER", "TEMPORARY", "AwayError", "Ignored", "open_marked", "remove_marker", "write_marker"]

MARKER: Final = b".hybrisfs-mirror"
"""The file by which a mirror knows its folder."""

TEMPORARY: Final = MARKER + b"-"
"""What the names of files in the making begin with."""

_PASSING: Final = re.compile(
    rb"""
    \.hybrisfs-mirror.*      # our own
    | \.hybrisfs-serve-.*    # uploads that are under way (serving/unfinished.py)
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
        from pathspec import GitIgnoreSpec  # few volumes have mirrors

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


# -- the marker in a folder -----------------------------------------------------------------------------
# `.hybrisfs-mirror` in the folder: {"format": 1, "mirror": ID}.


_FORMAT: Final = 1
_LARGEST: Final = 4096


class AwayError(Exception):
    """The folder cannot be compared with anything just now; the message says why."""


def open_marked(directory: Path, mirror: str) -> int:
    """Open the folder. Raises AwayError unless it is the one that the mirror was made for."""
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise AwayError(f"the folder cannot be opened: {error.strerror}") from error
    try:
        if _read(root) != mirror:
            raise AwayError("the marker in the folder is another mirror's")
    except OSError as error:
        os.close(root)
        if error.errno == errno.ENOENT:
            raise AwayError(
                f"the folder lacks the marker {os.fsdecode(MARKER)}: is its disk not mounted?"
            ) from error
        raise AwayError(f"the folder cannot be read: {error.strerror}") from error
    except AwayError:
        os.close(root)
        raise
    return root


def _read(root: int) -> str:
    descriptor = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    try:
        record = json.loads(os.read(descriptor, _LARGEST))
        return str(record["mirror"])
    except (ValueError, KeyError, TypeError) as error:
        raise AwayError("the marker in the folder is damaged") from error
    finally:
        os.close(descriptor)


def write_marker(directory: Path, mirror: str, environment: Environment) -> None:
    """Mark the folder; one that another mirror has left is replaced. Raises OSError."""
    record = json.dumps({"format": _FORMAT, "mirror": mirror}).encode()
    temporary = directory / (os.fsdecode(MARKER) + "-new")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.write(descriptor, record)
        environment.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(directory / os.fsdecode(MARKER))


def remove_marker(directory: Path, mirror: str) -> None:
    """Take the mark away, if it is this mirror's. Raises OSError."""
    try:
        os.close(open_marked(directory, mirror))
    except AwayError:
        return
    (directory / os.fsdecode(MARKER)).unlink()
