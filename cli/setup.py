"""hybrisfs setup, quickstart"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from cli.arguments import complete_directories, make_option
from cli.device import invite as invite_device
from cli.output import columns, count, json_option, print_json, quoted, shown, warned
from cli.recovery import describe_kit, make_kit, write_page
from cli.secrets import ask_secrets
from cli.usage import command
from hybrisfs.api.clouds import named_url
from hybrisfs.api.request import message_of
from hybrisfs.api.volumes import (
    MountRequest,
    PlaceSecretsRequest,
    PlaceSuggestionsRequest,
    PlaceTryRequest,
    QuickstartRequest,
    Started,
    Volume,
    VolumeCreateRequest,
    VolumeListRequest,
)
from hybrisfs.client import Client, HybrisError, Message, cloud_kinds, install_service, service_status
from hybrisfs.client import UsageError as HybrisUsageError


@command(
    epilog="""\b
Examples:
  hybrisfs setup
  hybrisfs setup --name photos --folder ~/Photos \\
    --cloud file:///mnt/a/x --cloud file:///mnt/b/x --cloud file:///mnt/c/x \\
    --kit kit.html --service"""
)
@click.option("--name", "--volume", "name", help="Name of the volume.")
@click.option("--folder", metavar="DIR", shell_complete=complete_directories, help="Where to mount it.")
@click.option(
    "--cloud",
    "clouds",
    metavar="[NAME=]URL",
    multiple=True,
    help="A cloud, with a name if it is to have one; give it once for each.",
)
@make_option
@click.option("--try", "trial", is_flag=True, help="Three folders on this disk stand in for clouds.")
@click.option("-f", "f", type=click.IntRange(min=0), help="How many clouds may fail or lie.")
@click.option(
    "--kit",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Make a recovery kit, and write its page there.",
)
@click.option("--no-kit", is_flag=True, help="Make no recovery kit.")
@click.option("--service/--no-service", default=None, help="Whether systemd starts it at every login.")
@click.option("--invite/--no-invite", default=None, help="Whether to invite another machine now.")
@json_option
def setup(
    name: str | None,
    folder: str | None,
    clouds: tuple[str, ...],
    make: bool,
    trial: bool,
    f: int | None,
    kit: Path | None,
    no_kit: bool,
    service: bool | None,
    invite: bool | None,
    as_json: bool,
) -> None:
    """Set up a volume step by step: name, folder, clouds, recovery kit, start at login, another machine.

    Asks for what is not given as an option, and tries out each cloud. Without a terminal nothing is asked:
    name and clouds must be given, and what follows is done only when an option says so.
    """
    if kit is not None and no_kit:
        raise click.UsageError("--kit and --no-kit exclude each other")
    if invite and as_json:
        raise click.UsageError("with --json, use hybrisfs device invite --json")
    if trial and clouds:
        raise click.UsageError("--try and --cloud exclude each other")
    steps = _Steps(ask=sys.stdin.isatty() and not as_json, make=make)
    name = steps.name(name)
    folder = steps.folder(name, folder)
    urls = steps.clouds(name, clouds, trial)
    f = steps.faults(len(urls), f)
    with Client.connect() as client:
        asked = VolumeCreateRequest(name, urls, f, make=make or trial or None)
        created = client.call(asked)
        made = created.volume
        place = str(Path(folder).expanduser().absolute())
        mounted = client.call(MountRequest(name, place))
    facts: Message = {"volume": message_of(made), "mountpoint": mounted.mountpoint}
    if not as_json:
        _explain(made, mounted.mountpoint)
        for line in warned(created.warnings):
            click.echo(line)
    page = kit if kit is not None or no_kit else steps.kit_page(name, trial)
    if page is not None:
        facts["recovery"] = _make_kit(name, page, as_json)
    if steps.service(service):
        facts["service"] = _install_service(as_json)
    if as_json:
        print_json(facts)
    elif steps.invites(invite):
        click.get_current_context().invoke(invite_device, name=name)
    else:
        click.echo(f"\nhybrisfs status {quoted(name)} tells whether everything is safe.")


class _Steps:
    """The questions, one method each; what was given is not asked for."""

    def __init__(self, *, ask: bool, make: bool) -> None:
        self._ask = ask
        self._make = make

    def name(self, given: str | None) -> str:
        if given is not None or not self._ask:
            return _needed(given, "--name")
        click.echo("A volume is one folder that all your machines share.", err=True)
        return str(click.prompt("What shall it be called?", default="home", value_proc=_free_name, err=True))

    def folder(self, name: str, given: str | None) -> str:
        with Client.connect() as client:
            usual = client.call(PlaceSuggestionsRequest(name)).mountpoint
        if given is not None or not self._ask:
            return given if given is not None else usual
        return str(click.prompt("Where shall it be?", default=usual, value_proc=_free_folder, err=True))

    def clouds(self, name: str, given: tuple[str, ...], trial: bool) -> list[str]:
        if trial:
            return self._on_this_disk(name)
        if not given and not self._ask:
            raise click.UsageError("give --cloud for each cloud, or --try")
        for url in given:
            self._try_out(url)
        return list(given) or self._asked_clouds(name)

    def faults(self, clouds: int, given: int | None) -> int | None:
        most = (clouds - 1) // 2
        if given is not None or not self._ask or most < 2:
            return given
        question = f"How many of the {clouds} may fail, or be lost, at the same time?"
        return int(click.prompt(question, default=1, type=click.IntRange(0, most), err=True))

    def kit_page(self, name: str, trial: bool) -> Path | None:
        """Where the page of a recovery kit is to be written; None when none is wanted."""
        if not self._ask:
            return None
        click.echo(
            "\nThe keys are on your machines only. If all of these are lost, only a recovery kit brings the "
            "volume\nback: a passphrase on paper, and your clouds.",
            err=True,
        )
        if not click.confirm("Make one now?", default=not trial, err=True):
            return None
        usual = Path.home() / f"hybrisfs-{name}-recovery.html"
        return Path(
            click.prompt(
                "Where shall the page to be printed go?",
                default=str(usual),
                value_proc=_free_file,
                err=True,
            )
        ).expanduser()

    def service(self, given: bool | None) -> bool:
        """Whether systemd is to start the daemon."""
        if given is not None or not self._ask:
            return bool(given)
        facts = service_status()
        if not facts["manager"] or facts["enabled"]:
            return False
        return click.confirm("\nShall it start whenever you log in?", default=True, err=True)

    def invites(self, given: bool | None) -> bool:
        """Whether to invite another machine now."""
        if given is not None or not self._ask:
            return bool(given)
        return click.confirm("\nLet another machine in now?", default=False, err=True)

    def _on_this_disk(self, name: str) -> list[str]:
        with Client.connect() as client:
            return client.call(PlaceSuggestionsRequest(name)).clouds

    def _asked_clouds(self, name: str) -> list[str]:
        click.echo(
            "\nWhat you put there is kept, encrypted, on clouds: of three, one may fail; of five, two."
            "\nName one at a time:\n" + "\n".join(columns([list(kind) for kind in cloud_kinds()])),
            err=True,
        )
        urls: list[str] = []
        while True:
            question = f"Cloud {len(urls) + 1}" + (
                " (Enter when that is all)" if urls else " (Enter to try it out)"
            )
            url = click.prompt(question, default="", show_default=False, err=True).strip()
            if url in urls:
                click.echo("  That one is there already.", err=True)
            elif url:
                urls += [url] if self._accepted(url) else []
            elif not urls:
                question = "Shall three folders on this disk stand in for clouds, to try it out?"
                if click.confirm(question, default=True, err=True):
                    return self._on_this_disk(name)
            elif len(urls) >= 3 or click.confirm(
                f"With {count(len(urls), 'cloud')} none may fail. Is that all?", default=False, err=True
            ):
                return urls

    def _accepted(self, url: str) -> bool:
        """Whether a cloud works; a person may try again."""
        try:
            self._try_out(url)
        except (HybrisError, click.UsageError) as error:
            click.echo(
                f"  {error.format_message() if isinstance(error, click.UsageError) else error}", err=True
            )
            return False
        return True

    def _try_out(self, cloud: str) -> None:
        """Put, get and delete a small object, with secrets that are asked for if there are none yet."""
        _, url = named_url(cloud)
        with Client.connect() as client:
            facts = client.call(PlaceSecretsRequest(url))
            secrets = None
            if self._ask and facts.secrets and not facts.known:
                click.echo(f"  What does {shown(urlsplit(facts.cloud).netloc)} know you by?", err=True)
                secrets = ask_secrets(facts.secrets) or None
            tried = client.call(PlaceTryRequest(url, secrets, self._make or None))
        if self._ask:
            longest = max(tried.seconds.values())
            click.echo(f"  It works: no request took longer than {longest * 1000:.0f} ms.", err=True)


def _free_name(name: str) -> str:
    """A name that a new volume can have. Raises UsageError, upon which click asks again."""
    try:
        with Client.connect() as client:
            client.call(PlaceSuggestionsRequest(name))
            taken = [volume.name for volume in client.call(VolumeListRequest()).volumes]
    except HybrisUsageError as error:
        raise click.UsageError(str(error)) from error
    if name in taken:
        raise click.UsageError(f"there is a volume {shown(name)} already")
    return name


def _free_folder(name: str) -> str:
    """A folder that is empty or can be made. Raises UsageError, upon which click asks again."""
    folder = Path(name).expanduser()
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"{shown(name)} is not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise click.UsageError(f"{shown(name)} is not empty")
    return name


def _needed(value: str | None, option: str) -> str:
    if value is None:
        raise click.UsageError(f"there is no terminal: give {option}")
    return value


def _free_file(name: str) -> str:
    """A file that is not there yet, in a folder that is. Raises UsageError, upon which click asks again."""
    path = Path(name).expanduser()
    if path.exists():
        raise click.UsageError(f"{shown(name)} exists already")
    if not path.absolute().parent.is_dir():
        raise click.UsageError(f"{shown(str(path.parent))} is not a folder")
    return name


def _make_kit(name: str, page: Path, as_json: bool) -> Message:
    made, pages = make_kit(name, None)
    if not as_json:
        click.echo("\n".join(["", *describe_kit(made)]))
    write_page(page, pages)
    if not as_json:
        click.echo(f"Print {shown(str(page))}, and write the passphrase on it by hand, now.")
    return {**message_of(made), "page": str(page)}


def _install_service(as_json: bool) -> Message:
    facts = install_service()
    if not as_json:
        click.echo("It starts whenever you log in from now on.")
    return facts


def _explain(volume: Volume, mountpoint: str) -> None:
    clouds, f, k = len(volume.clouds), volume.f, volume.k
    name = volume.name
    click.echo(f"\n{shown(name)} is at {shown(mountpoint)}: use it like any folder.")
    kept = f"Everything there is kept on {f + k} of {count(clouds, 'cloud')}"
    click.echo(f"{kept}; {'none may fail' if f == 0 else f'any {f} may fail'}.")


# -- hybrisfs quickstart --------------------------------------------------------------------------------


@command(epilog="\b\nExample:\n  hybrisfs quickstart ~/HybrisFS")
@click.argument("directory", shell_complete=complete_directories, metavar="[DIR]", required=False)
@json_option
def quickstart(directory: str | None, as_json: bool) -> None:
    """Set up the volume "home" over three local folders that stand in for clouds, and mount it at DIR.

    DIR is ~/HybrisFS unless given. You can run it again: it does the rest.
    """
    place = str(Path(directory).absolute()) if directory else None
    with Client.connect() as client:
        facts = client.call(QuickstartRequest(place))
    if as_json:
        print_json(facts)
    else:
        _explain_started(facts)


def _explain_started(facts: Started) -> None:
    volume, mountpoint = facts.volume, facts.mountpoint or ""
    folders = [unquote(urlsplit(cloud.url).path, errors="surrogateescape") for cloud in volume.clouds]
    made = "Created the volume" if facts.created else "There is the volume"
    click.echo(f"{made} {volume.name}. These folders stand in for clouds; any {volume.f} may fail:")
    for folder in folders:
        click.echo(f"  {shown(folder)}")
    click.echo(f"{'Mounted it' if facts.mounted else 'It is mounted'} at {shown(mountpoint)}.")
    copy = quoted(f"{mountpoint}/os-release")
    _suggest(
        "Try next:",
        [
            (f"cp /etc/os-release {quoted(mountpoint)}", "use it like any folder"),
            ("hybrisfs status", "is everything safe?"),
            ("hybrisfs sync --wait", "wait until it is"),
        ],
    )
    _suggest(
        "Then lose a cloud, forget what is kept here, and read it back:",
        [
            (f"mv {quoted(folders[0])} {quoted(folders[0] + '.lost')}", ""),
            ("hybrisfs cache drop", ""),
            (f"cmp /etc/os-release {copy} && hybrisfs status", ""),
        ],
    )


def _suggest(title: str, commands: list[tuple[str, str]]) -> None:
    click.echo(f"\n{title}")
    rows = [[command, f"# {remark}" if remark else ""] for command, remark in commands]
    click.echo("\n".join(columns(rows)))
