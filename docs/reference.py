"""`python -m docs.reference`: writes reference.md, every command with its options, from the commands.

A test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

import click

from cli.main import program

__all__ = ["main", "reference_page"]

_PAGE: Final = Path(__file__).with_name("reference.md")
_HEAD: Final = """# Reference

Every command, as `hybrisfs COMMAND --help` shows it. Made by `python -m docs.reference`.
[Commands](commands.md) says what they are good for. Every command takes `--help`; those about one volume take
`--volume NAME`, and those that print facts `--json`. Exit codes: 0 done, 1 failed or a problem was found, 2
wrong usage, 3 time ran out and the work goes on, 4 no such volume, 5 the daemon cannot be reached, 6 a
condition of `kv` does not hold, 70 a bug, 130 interrupted.
"""


def reference_page() -> str:
    """The text of reference.md."""
    top = click.Context(program, info_name="hybrisfs")
    return _HEAD + "".join(_sections(program, top, 2))


def _sections(group: click.Group, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield f"\n{'#' * level} {inner.command_path}\n\n{_text(command)}\n"
        if isinstance(command, click.Group):
            yield from _sections(command, inner, level + 1)
        else:
            yield f"\n{_usage(command, inner)}"


def _text(command: click.Command) -> str:
    """What it does, a paragraph a line."""
    paragraphs = cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs if one)


def _usage(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    examples = cleandoc((command.epilog or "").replace("\b", "")).splitlines()[1:]
    block = "\n".join([usage, *(["", *(line.removeprefix("  ") for line in examples)] if examples else [])])
    found = (one.get_help_record(context) for one in command.params)
    options = [record for record in found if record is not None and record[1]]
    table = "".join(f"| `{_cell(names)}` | {_cell(meaning)} |\n" for names, meaning in options)
    return f"```text\n{block}\n```\n" + (f"\n| option | what it does |\n|---|---|\n{table}" if table else "")


def _cell(text: str) -> str:
    for kind in ("INTEGER RANGE", "FLOAT RANGE"):
        text = text.replace(kind, "N")
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write reference.md."""
    _PAGE.write_text(reference_page())


if __name__ == "__main__":
    main()
