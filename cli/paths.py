"""Paths on the command line of those commands that work on single files and folders."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

__all__ = ["absolute", "complete_directories", "complete_files"]


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a file or directory."""
    return [CompletionItem(incomplete, type="file")]


def complete_directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a directory."""
    return [CompletionItem(incomplete, type="dir")]


def absolute(paths: Sequence[str]) -> list[str]:
    """The paths as the daemon wants them: absolute, and without symbolic links, which it does not follow."""
    return [os.path.realpath(path) for path in paths]
