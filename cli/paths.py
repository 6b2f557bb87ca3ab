"""Paths on the command line of those commands that work on single files and folders."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["absolute"]


def absolute(paths: Sequence[str]) -> list[str]:
    """The paths as the daemon wants them: absolute, and without symbolic links, which it does not follow."""
    return [os.path.realpath(path) for path in paths]
