"""The name of a volume on the command line, as argument or option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from hybrisfs.client import volume_names

__all__ = ["complete_mounts", "complete_volumes", "volume_option"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def complete_volumes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a volume. No daemon is asked, or started."""
    return [CompletionItem(name) for name in volume_names() if name.startswith(incomplete)]


def complete_mounts(context: click.Context, one: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete what is typed as the name of a volume or of a directory."""
    # The directories first: click's script for bash forgets what was before them.
    return [CompletionItem(incomplete, type="dir"), *complete_volumes(context, one, incomplete)]


volume_option: Final[Callable[[_Function], _Function]] = click.option(
    "--volume",
    "name",
    metavar="NAME",
    help="Which volume, if there are several.",
    shell_complete=complete_volumes,
)
