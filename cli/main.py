"""The `hybrisfs` program: finds the command, and turns every failure into one clear message.

The file of a command is imported only when that command runs. A command
function returns the exit code, or None for 0; the codes are listed in `hybrisfs.errors`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, add_completion_class

__all__ = ["EXIT_CODES", "Program", "main", "program"]

# Command: the module with its function, whose name follows if it is another one; its line in the overview.
_COMMANDS: Final = {
    "quickstart": ("setup", "Set up a volume over three local folders and mount it: the first thing to try."),
    "setup": ("setup", "Set up a volume step by step: name, folder, clouds."),
    "volume": ("volume", "Create, list, set, rename, leave and delete volumes."),
    "mount": ("mount", "Mount a volume at a folder."),
    "umount": ("mount", "Unmount a volume."),
    "status": ("status", "Show whether everything is safe, and how the clouds are."),
    "ui": ("ui", "Show everything on a page in the browser."),
    "tray": ("tray", "Show an icon in the panel of the desktop."),
    "metrics": ("metrics", "Print figures for a monitoring system."),
    "log": ("versions", "Show who changed a file or folder, and when."),
    "events": ("status", "Show what has happened: clouds that failed, conflicts, machines."),
    "pending": ("pending", "List which files wait for the clouds, and how long that may take."),
    "sync": ("status", "Bring everything to the clouds, and wait for it."),
    "mirror": ("mirror", "Keep ordinary folders equal to folders of a volume."),
    "import": ("mirror:import_folder", "Copy a folder into a volume, with progress."),
    "pin": ("files", "Keep files and folders on this machine, or list what is kept."),
    "unpin": ("files", "Let pinned files and folders be evicted again."),
    "evict": ("files", "Free the disk space of files and folders that the clouds hold."),
    "copies": ("copies", "Have folders kept on several machines, and see on which they are."),
    "label": ("files", "Put words on files and folders, and find these by them."),
    "ignore": ("ignore", "Choose files and folders that stay on the machine that makes them."),
    "limit": ("transfers", "Limit the bandwidth, by the time of day."),
    "cost": ("cost", "Show what the clouds charge in a month, and what the archive saves."),
    "pause": ("transfers", "Stop transfers with the clouds for a while."),
    "resume": ("transfers", "Let transfers with the clouds go on."),
    "cache": ("files", "Manage the local copies of what the clouds hold."),
    "versions": ("versions", "List, show and restore what files and folders were before."),
    "share": ("share", "Make a link that opens one file in any browser, for some days."),
    "conflicts": ("decisions", "See and settle what several machines have changed at the same time."),
    "deletions": ("decisions", "Decide on what other machines deleted or overwrote in mass."),
    "device": ("device", "Let other machines into a volume, and list them."),
    "recovery": ("recovery", "Prepare for the loss of all machines: make and check recovery kits."),
    "recover": ("recovery", "Bring a volume back from its clouds when all machines are lost."),
    "kv": ("kv", "Use the volume as a key-value store."),
    "cloud": ("cloud", "List, test, add, rename, drain, remove and replace clouds."),
    "relay": ("relay", "Be a relay: keep sealed objects, and connect machines behind NATs."),
    "serve": ("serve", "Serve files by WebDAV or SFTP, and the key-value store by S3."),
    "fsck": ("maintenance", "Verify that nothing is damaged or missing."),
    "scrub": ("maintenance", "Verify what the clouds hold."),
    "repair": ("maintenance", "Rebuild what a cloud has lost or damaged."),
    "gc": ("maintenance", "Delete from the clouds what no file needs any more."),
    "doctor": ("daemon", "Examine this machine: what is wrong, and what to do."),
    "service": ("daemon", "Have systemd run the daemon."),
    "daemon": ("daemon", "Run the daemon in the foreground, as a service manager does."),
}

_SECTIONS: Final = {
    "Begin": "quickstart setup volume mount umount",
    "Every day": "status pending sync events log ui tray",
    "Files": "pin unpin evict copies label ignore share versions conflicts deletions import mirror cache",
    "Machines": "device recovery recover",
    "Clouds": "cloud cost limit pause resume fsck scrub repair gc",
    "For other programs": "kv serve metrics",
    "This machine": "doctor service daemon relay",
}
"""The commands as the help lists them."""
EXIT_CODES: Final = {
    0: "done",
    1: "failed, or a check found a problem",
    2: "wrong usage",
    3: "time ran out before the work was done; it goes on in the background",
    4: "no such volume",
    5: "the daemon cannot be reached or started",
    6: "a condition of a write does not hold; nothing was written",
    70: "a bug; the details are in the log",
    130: "interrupted",
}
"""What they mean, see `hybrisfs.errors`."""

_EPILOG: Final = """\b
Examples:
  hybrisfs quickstart          try it, over three local folders
  hybrisfs status              is everything safe?
  hybrisfs sync --wait         wait until it is

\b
Exit codes:
""" + "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())

_INTERRUPTED: Final = 130
_BUG: Final = 70


_SPECIAL: Final = re.compile(r"[^\w@%+=:,./-]")  # to a shell


@add_completion_class
class _Bash(BashComplete):
    """Completions for bash, which takes them as they are; zsh and fish quote what they insert."""

    def format_completion(self, item: CompletionItem) -> str:
        quoted = _SPECIAL.sub(r"\\\\\g<0>", item.value)  # twice, for click's script takes one away
        return f"{item.type},{quoted if item.type == 'plain' else item.value}"


@add_completion_class
class _Fish(FishComplete):
    """Completions for fish, also those with commas, at which click's script cuts them off."""

    source_template = FishComplete.source_template.replace("string split ", "string split --max 1 ")


class Program(click.Group):
    """The group of all commands. Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, function = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(f"cli.{module}"), function or cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            groups = ((one, self.get_command(ctx, one)) for one in _COMMANDS)
            within = [f"{one} {name}" for one, found in groups if name in getattr(found, "commands", ())]
            likely = ["--help"] if name == "help" else within or get_close_matches(name, _COMMANDS)
            meant = " or ".join(likely)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {meant}?" if meant else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, _COMMANDS))
        for heading, names in _SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), _COMMANDS[name][1]) for name in names.split()])

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Run, report what goes wrong, and exit with the code that says so."""
        code: int | None
        try:
            # https://no-color.org
            color = False if os.environ.get("NO_COLOR") else None
            code = super().main(args, prog_name="hybrisfs", standalone_mode=False, color=color)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else "")
            code = 2
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except (KeyboardInterrupt, click.Abort):
            click.echo("\ninterrupted" if sys.stderr.isatty() else "interrupted", err=True)
            code = _INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the last resort: recorded, and shown in one line
            code = _report(error)
        sys.exit(code or 0)


def _report(error: Exception) -> int:
    from hybrisfs.client import HybrisError, clean, record_crash

    if isinstance(error, HybrisError):
        click.echo(f"hybrisfs: {clean(str(error))}", err=True)
        return error.exit_code
    import traceback

    try:
        where = f"The details are in {record_crash(traceback.format_exc())}."
    except OSError as unwritable:
        where = f"The details could not be written: {unwritable.strerror}."
    click.echo(f"hybrisfs: unexpected {type(error).__name__}: {clean(str(error))}\n{where}", err=True)
    return _BUG


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from hybrisfs.client import VERSION

        click.echo(f"hybrisfs {VERSION}")
        ctx.exit()


@click.group(cls=Program, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version.",
)
def program() -> None:
    """A folder on all your machines that no cloud provider can read, lose, forge or roll back."""
    from hybrisfs.client import forbid_core_dumps

    forbid_core_dumps()  # commands read passphrases and secrets


def main() -> NoReturn:
    """The console script."""
    program.main()


if __name__ == "__main__":
    main()
