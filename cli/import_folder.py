"""hybrisfs import"""

from __future__ import annotations

import os

import click

from cli.output import count, json_option, print_json, shown, size
from cli.paths import complete_directories
from cli.progress import progress_bar
from cli.volume_name import volume_option
from hybrisfs.api.mirrors import Imported, ImportRequest
from hybrisfs.client import Client


@click.command(
    name="import",
    epilog="\b\nExamples:\n  hybrisfs import ~/Pictures --dry-run\n  hybrisfs import /mnt/home --into old",
)
@click.argument("directory", shell_complete=complete_directories, metavar="DIR")
@volume_option
@click.option("--into", metavar="PATH", help="The folder of the volume; by default called like DIR.")
@click.option("--dry-run", is_flag=True, help="Only say what would be copied.")
@click.option("--replace", is_flag=True, help="Replace files of the volume that differ.")
@json_option
def import_folder(
    directory: str, name: str | None, into: str | None, dry_run: bool, replace: bool, as_json: bool
) -> int:
    """Copy DIR into a volume, with permissions, times, extended attributes, links and holes.

    What is there already and equal is not copied again, so that an import that was interrupted goes on when
    it is run again. What was stored is compared with what was read. The exit code is 1 when something could
    not be copied.
    """
    asked = ImportRequest(
        name=name,
        directory=os.path.abspath(directory),  # noqa: PTH100
        into=into,
        dry_run=dry_run,
        replace=replace,
    )
    with Client.connect() as client, progress_bar("bytes") as show:
        facts = client.call(asked, lambda step: show(step.what, step.done, step.total))
    if as_json:
        print_json(facts)
    else:
        _explain(facts)
    return 1 if facts.problem_count else 0


def _explain(facts: Imported) -> None:
    verb = "would be copied" if facts.dry_run else "copied"
    what = f"{count(facts.files, 'file')} ({size(facts.bytes)}) and {count(facts.folders, 'folder')}"
    click.echo(f"{shown(facts.name)}: {what} {verb} into {shown(facts.into)}.")
    if facts.present:
        click.echo(
            f"  {count(facts.present, 'name')} {'was' if facts.present == 1 else 'were'} there already"
        )
    if facts.replaced:
        click.echo(f"  {facts.replaced:,} of them in place of others")
    for one in facts.problems:
        click.echo(f"  {shown(one.path)}: {shown(one.why)}", err=True)
    if facts.problem_count > len(facts.problems):
        click.echo(f"  and {facts.problem_count - len(facts.problems):,} more", err=True)
