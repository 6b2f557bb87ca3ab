"""hybrisfs ui"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import click

from cli.arguments import complete_files, complete_volumes, mounted_place
from cli.output import json_option, shown
from hybrisfs.api.status import StatusRequest
from hybrisfs.client import Client
from hybrisfs.client import UsageError as HybrisUsageError

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECTIONS: Final = (
    "overview",
    "clouds",
    "transfers",
    "devices",
    "files",
    "kv",
    "conflicts",
    "cost",
    "settings",
    "events",
)


@click.command(
    epilog="\b\nExamples:\n  hybrisfs ui\n  hybrisfs ui ~/HybrisFS/notes.txt  # its versions"
    "\n  hybrisfs ui --section conflicts\n  hybrisfs ui --no-browser      # then open the link it prints"
)
@click.argument("path", shell_complete=complete_files, required=False)
@click.option(
    "--volume",
    "name",
    metavar="NAME",
    help="Which volume to show first, instead of PATH.",
    shell_complete=complete_volumes,
)
@click.option(
    "--section",
    type=click.Choice(_SECTIONS),
    metavar="SECTION",
    help=f"What to show first: {', '.join(_SECTIONS[:-1])} or {_SECTIONS[-1]}.",
)
@click.option("--no-browser", is_flag=True, help="Only print the link that opens the page.")
@json_option
def ui(path: str | None, name: str | None, section: str | None, no_browser: bool, as_json: bool) -> int:
    """Show everything on a page in the browser: is all safe, clouds, transfers, conflicts, files, cost.

    With PATH, it opens at that folder, or at that file and its versions; with --section as well, at that
    section of the volume that PATH is in.

    On a machine without a volume, the page leads through what hybrisfs setup asks, or joins a volume.

    The page is served on this machine only, to this user only, until Ctrl-C or until it has not been looked
    at for 15 minutes. The link works once; run the command again for another one. With --json, which opens
    no browser, the link is printed as JSON.
    """
    from dashboard.server import serve

    with Client.connect() as client:  # a daemon that cannot be started is better told here
        wanted = _wanted(client, path, name)
    if section is not None:
        wanted["section"] = section

    def show(link: str) -> None:
        link += "".join(f"&{urlencode([one], errors='surrogateescape')}" for one in wanted.items())
        if as_json:
            click.echo(json.dumps({"url": link}))
        else:
            click.echo(f"{link}\nThis link works once. Ctrl-C ends the page.")
        if not no_browser and not as_json:
            _open(link)

    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)  # a daemon that starts this has them blocked
    try:
        serve(show)
    except KeyboardInterrupt:
        click.echo(err=True)
    return 0


def _wanted(client: Client, path: str | None, name: str | None) -> dict[str, str]:
    """What is to be shown first, in the words of the page's link. Raises HybrisError."""
    if path is not None and name is not None:
        raise HybrisUsageError("a path tells its volume", advice="Give either PATH or --volume.")
    if name is not None:
        [volume] = client.call(StatusRequest(name=name, without_look=True)).volumes
        return {"volume": volume.name}
    return {} if path is None else _place(client, path)


def _place(client: Client, path: str) -> dict[str, str]:
    """The volume that a path is in, and where, in the words of the page's link. Raises UsageError."""
    place = mounted_place(client, path)
    if place is None:
        raise HybrisUsageError(
            f"{shown(path)} is in no mounted volume", advice="Give a file or folder of one."
        )
    return {
        "section": "files",
        "volume": place.volume,
        "folder" if Path(path).is_dir() else "file": place.path,
    }


def _open(link: str) -> None:
    """Open the link in a browser with windows; one in the terminal would keep the page from being served."""
    try:
        browser: webbrowser.BaseBrowser | None = webbrowser.get()
    except webbrowser.Error:
        browser = None
    in_terminal = type(browser) is webbrowser.GenericBrowser and sys.stdin.isatty()
    if browser is None or in_terminal or not _starts(browser, link):
        click.echo("No browser could be opened: open the link yourself.", err=True)


def _starts(browser: webbrowser.BaseBrowser, link: str) -> bool:
    if not isinstance(browser, webbrowser.GenericBrowser):
        return browser.open(link)
    # Its own `open` waits for it, or takes one for failed that has handed the link on and ended already.
    try:
        process = subprocess.Popen(
            [browser.name, *(word.replace("%s", link) for word in browser.args)], start_new_session=True
        )
    except OSError:
        return False
    return process.poll() in (None, 0)
