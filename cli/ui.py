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

from cli.arguments import complete_places, complete_volumes, place_unless_volume
from cli.output import json_option, shown
from cli.usage import command
from hybrisfs.api.status import StatusRequest
from hybrisfs.client import Client, UsageError

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


@command(
    epilog="\b\nExamples:\n  hybrisfs ui\n  hybrisfs ui ~/HybrisFS/notes.txt  # its versions"
    "\n  hybrisfs ui --section conflicts\n  hybrisfs ui --no-browser      # then open the link it prints"
)
@click.argument("place", required=False, metavar="[NAME|PATH]", shell_complete=complete_places)
@click.option(
    "--volume",
    "name",
    metavar="NAME",
    help="Which volume to show first.",
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
def ui(place: str | None, name: str | None, section: str | None, no_browser: bool, as_json: bool) -> int:
    """Show everything on a page in the browser: is all safe, clouds, transfers, conflicts, files, cost.

    NAME is a volume. With PATH, it opens at that folder, or at that file and its versions; with --section as
    well, at that section of the volume that PATH is in.

    On a machine without a volume, the page leads through what hybrisfs setup asks, or joins a volume.

    The page is served on this machine only, to this user only, until Ctrl-C or until it has not been looked
    at for 15 minutes. The link works once; run the command again for another one. With --json, which opens
    no browser, the link is printed as JSON.
    """
    from dashboard.server import serve

    with Client.connect() as client:  # a daemon that cannot be started is better told here
        wanted = _wanted(client, place, name)
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


def _wanted(client: Client, place: str | None, name: str | None) -> dict[str, str]:
    """What is to be shown first, in the words of the page's link. Raises HybrisError."""
    found = place_unless_volume(client, place) if place is not None else None
    volume = found.volume if found is not None else place
    if None not in (volume, name) and volume != name:
        raise UsageError(f"{shown(place or '')} is not in the volume {shown(name or '')}")
    if found is not None and place is not None:
        within = "folder" if Path(place).is_dir() else "file"
        return {"section": "files", "volume": found.volume, within: found.path}
    if volume is None and name is None:
        return {}
    [known] = client.call(StatusRequest(name=volume or name, without_look=True)).volumes
    return {"volume": known.name}


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
