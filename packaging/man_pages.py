"""Writes the man pages, one per command, from the help that the commands print.

man_pages.py FOLDER VERSION DATE
"""

from __future__ import annotations

import sys
from inspect import cleandoc

import click
from click_man.core import write_man_pages

from cli.main import program

_WHOLE = 1000  # characters of a summary: it is not cut


def prepare(command: click.Command, context: click.Context) -> None:
    """Have whole summaries and the examples on the pages, of this command and of those below it."""
    command.short_help = command.get_short_help_str(_WHOLE)
    command.help = f"{cleandoc(command.help or '')}\n\n{command.epilog or ''}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):  # some are loaded when they are asked for
            below = command.get_command(context, name)
            assert below is not None
            command.add_command(below, name)
            prepare(below, click.Context(below, parent=context, info_name=name))


folder, version, date = sys.argv[1:]
prepare(program, click.Context(program, info_name="hybrisfs"))
write_man_pages("hybrisfs", program, version=version, target_dir=folder, date=date)
