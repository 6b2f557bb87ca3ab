"""Paths on the command line of those commands that work on single files and folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from hybrisfs.api.volumes import VolumeListRequest
from hybrisfs.client import Client

__all__ = ["Place", "absolute", "complete_directories", "complete_files", "mounted_place"]


class Place(NamedTuple):
    """A path below the folder of a volume; "" for that itself."""

    volume: str
    path: str


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a file or directory."""
    return [CompletionItem(incomplete, type="file")]


def complete_directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a directory."""
    return [CompletionItem(incomplete, type="dir")]


def absolute(paths: Sequence[str]) -> list[str]:
    """The paths as the daemon wants them: absolute, and without symbolic links, which it does not follow."""
    return [os.path.realpath(path) for path in paths]


def mounted_place(client: Client, path: str) -> Place | None:
    """Where a path leads to, if that is in a mounted volume."""
    [real] = absolute([path])
    for volume in client.call(VolumeListRequest()).volumes:
        if volume.mountpoint is not None and Path(real).is_relative_to(volume.mountpoint):
            within = os.path.relpath(real, volume.mountpoint)
            return Place(volume.name, "" if within == "." else within)
    return None
