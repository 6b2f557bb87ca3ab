"""The commands that a page of the documentation shows: in its blocks, and between backticks in its text."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from cli.main import program

__all__ = ["Shown", "command_of", "commands", "hybrisfs_words", "may_be_a_name", "shown_on"]

_SHOWN: Final = re.compile(
    r"^ *```(?P<kind>[a-z]*)\n(?P<block>.*?)^ *```$|`(?P<inline>hybrisfs\s[^`]*)`", re.MULTILINE | re.DOTALL
)
_PROMPT: Final = "$ "


@dataclass(frozen=True)
class Shown:
    """A line of a block, or a command of ours in the text."""

    text: str
    in_block: bool
    is_transcript: bool = False
    """Does the page say what it prints?"""


def shown_on(page: Path) -> Iterator[Shown]:
    """What the page shows, in its order."""
    for found in _SHOWN.finditer(page.read_text()):
        if found["inline"] is not None:
            yield Shown(" ".join(found["inline"].split()), in_block=False)
        elif found["kind"] in ("sh", "console"):
            lines = (line.strip() for line in found["block"].replace("\\\n", " ").splitlines())
            is_transcript = found["kind"] == "console"
            for line in lines:
                if line and (not is_transcript or line.startswith(_PROMPT)):
                    yield Shown(line.removeprefix(_PROMPT), True, is_transcript)


def commands(page: Path) -> list[Shown]:
    """What is to be run of the page, each once. Transcripts are run by tests that know what they print."""
    kept: dict[str, Shown] = {}
    for one in shown_on(page):
        if not one.is_transcript:
            text = re.sub(r"\s+# .*", "", one.text)
            kept.setdefault(text, Shown(text, one.in_block))
    return list(kept.values())


def hybrisfs_words(text: str) -> list[str]:
    """The words of a command of ours, without its name; empty if it is another one."""
    with contextlib.suppress(ValueError):  # a quotation mark that is not closed is none of ours
        words = shlex.split(text, comments=True)
        if words[:1] == ["hybrisfs"]:
            return words[1:]
    return []


def command_of(text: str) -> tuple[click.Command, click.Context, list[str]]:
    """The command of ours that *text* names, and the words behind its name.

    Raises:
        AssertionError: there is none of that name.
    """
    command: click.Command = program
    context = click.Context(program, info_name="hybrisfs")
    rest = hybrisfs_words(text)
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z0-9-]*", rest[0]):
        found = command.get_command(context, rest.pop(0))
        assert found is not None, f"there is no {text}"
        command, context = found, click.Context(found, parent=context)
    return command, context, rest


def may_be_a_name(one: Shown) -> bool:
    """Is it in the text, and nothing but the name of a command and of its options?"""
    return not one.in_block and all(word.startswith("-") for word in command_of(one.text)[2])
