"""Asking for a passphrase: on a terminal or from a file, never as an argument or from the environment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

import click

__all__ = ["passphrase_file_option", "read_passphrase"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MOST: int = 8192  # characters; more than the daemon takes

passphrase_file_option: Callable[[_Function], _Function] = click.option(
    "--passphrase-file",
    "file",
    type=click.File(),
    help="Read the passphrase from this file, or from standard input for -.",
)


def read_passphrase(file: TextIO | None, *, twice: bool = False) -> str:
    """The passphrase in *file*, or as typed; *twice* for a new one. Raises click.UsageError when there is
    neither file nor terminal, or nothing in the file."""
    if file is not None:
        try:
            text = file.read(_MOST).strip()
        except UnicodeDecodeError as error:
            raise click.UsageError("The passphrase file is no text.") from error
        if not text:
            raise click.UsageError("The passphrase file is empty.")
        return text
    if not sys.stdin.isatty():
        raise click.UsageError("No terminal to ask for the passphrase: give it with --passphrase-file.")
    typed: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=twice, err=True)
    return typed
