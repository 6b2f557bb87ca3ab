"""Asking a person, or a file, for the secrets of a cloud. They never stand in an argument or an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from cli.output import shown
from hybrisfs.api.places import Secret

__all__ = ["ask_secrets", "read_secrets"]

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
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise click.UsageError(f"{shown(name)} cannot be read: {why}") from error
    if len(text) > _MAX_FILE:
        raise click.UsageError(f"{shown(name)} is too large for a secret")
    return str(text)
