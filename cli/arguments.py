"""Arguments that many commands take: paths of files and folders, and the name of a volume."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from hybrisfs.api.volumes import VolumeListRequest
from hybrisfs.client import Client, volume_names

__all__ = [
    "Place",
    "SizeType",
    "absolute",
    "complete_directories",
    "complete_files",
    "complete_mounts",
    "complete_volumes",
    "make_option",
    "mounted_place",
    "volume_argument",
    "volume_option",
]


_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?([KMGT])?B?")


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


# -- the name of a volume on the command line, as argument or option ------------------------------------


_Function = TypeVar("_Function", bound=Callable[..., Any])


def complete_volumes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a volume. No daemon is asked, or started."""
    return [CompletionItem(name) for name in volume_names() if name.startswith(incomplete)]


def complete_mounts(context: click.Context, one: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a volume or of a directory."""
    # The directories first: click's script for bash forgets what was before them.
    return [CompletionItem(incomplete, type="dir"), *complete_volumes(context, one, incomplete)]


volume_argument: Final[Callable[[_Function], _Function]] = click.argument(
    "name", metavar="VOLUME", shell_complete=complete_volumes
)
"""The volume, which has to be named."""


class SizeType(click.ParamType[int]):
    """A number of bytes, like 500M or 40G; the units are powers of 1000."""

    name = "size"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        found = _SIZE.fullmatch(str(value).upper())
        if found is None:
            self.fail(f"{str(value)[:80]!r} is no size: write 500M or 40G", parameter, context)
        return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))


make_option: Final[Callable[[_Function], _Function]] = click.option(
    "--make",
    is_flag=True,
    help="Make a file:// folder also when its parent is not there, or no disk is mounted.",
)

volume_option: Final[Callable[[_Function], _Function]] = click.option(
    "--volume",
    "name",
    metavar="NAME",
    help="Which volume, if there are several.",
    shell_complete=complete_volumes,
)
