"""Asking a person, or a file, for secrets and passphrases. None stands in an argument or an output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from cli.output import shown
from hybrisfs.api.volumes import Secret

if TYPE_CHECKING:
    from relay.code import RelayCode

__all__ = [
    "ask_secrets",
    "code_option",
    "passphrase_file_option",
    "read_code",
    "read_passphrase",
    "read_secrets",
]

_MAX_FILE: Final = 1 << 20  # bytes


def ask_secrets(wanted: list[Secret]) -> dict[str, str]:
    """Ask on the terminal for each of what the daemon calls the secrets of a cloud; none need be given."""
    click.echo("  Press Enter for what does not apply; @FILE takes the content of a file.", err=True)
    values = {}
    for secret in wanted:
        answer = click.prompt(
            f"  {secret.label}", default="", show_default=False, hide_input=secret.hidden, err=True
        )
        if answer.startswith("@"):
            answer = _content(answer[1:])
        if answer:
            values[secret.name] = answer
    return values


def read_code(source: str) -> RelayCode:
    """The code of a relay, in a file; "-" asks for it, or reads standard input. Raises UsageError."""
    from relay.code import RelayCode

    if source == "-" and sys.stdin.isatty():
        return RelayCode.decode(click.prompt("Code of the relay", hide_input=True, err=True))
    return RelayCode.decode(_content(source))


def read_secrets(source: str) -> dict[str, str]:
    """The secrets in a file ("-": standard input), a JSON object of texts. Raises UsageError."""
    try:
        values = json.loads(_content(source))
    except (ValueError, RecursionError):
        values = None  # the error would quote what it could not read
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise click.UsageError(f"{shown(source)} is not a JSON object of texts")
    return values


def _content(name: str) -> str:
    try:
        with click.open_file(name if name == "-" else str(Path(name).expanduser()), encoding="utf-8") as file:
            text = file.read(_MAX_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise click.UsageError(f"{shown(name)} cannot be read: {why}") from error
    if len(text) > _MAX_FILE:
        raise click.UsageError(f"{shown(name)} is too large for a secret")
    return str(text)


# -- asking for a passphrase ----------------------------------------------------------------------------


_Function = TypeVar("_Function", bound=Callable[..., Any])
_MOST: int = 8192  # characters; more than the daemon takes

passphrase_file_option: Callable[[_Function], _Function] = click.option(
    "--passphrase-file",
    "file",
    type=click.File(),
    help="Read the passphrase from this file, or from standard input for -.",
)


code_option: Callable[[_Function], _Function] = click.option(
    "--code",
    "source_of_code",
    metavar="FILE",
    help="Instead of URL, the code of a relay in this file; - asks for it, or reads standard input.",
)


def read_passphrase(file: TextIO | None, *, twice: bool = False) -> str:
    """The passphrase in *file*, or as typed; *twice* for a new one. Raises click.UsageError when there is
    neither file nor terminal, or nothing in the file."""
    if file is not None:
        try:
            text = file.read(_MOST).strip()
        except UnicodeDecodeError as error:
            raise click.UsageError("The passphrase file does not hold text.") from error
        if not text:
            raise click.UsageError("The passphrase file is empty.")
        return text
    if not sys.stdin.isatty():
        raise click.UsageError("No terminal to ask for the passphrase: give it with --passphrase-file.")
    typed: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=twice, err=True)
    return typed
