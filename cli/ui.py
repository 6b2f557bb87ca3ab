"""hybrisfs ui"""

from __future__ import annotations

import json
import webbrowser

import click

from cli.output import json_option
from hybrisfs.client import Client


@click.command(
    epilog="\b\nExamples:\n  hybrisfs ui\n  hybrisfs ui --no-browser      # then open the link it prints"
)
@click.option("--no-browser", is_flag=True, help="Only print the link that opens the page.")
@json_option
def ui(no_browser: bool, as_json: bool) -> int:
    """Show everything on a page in the browser: is all safe, clouds, transfers, conflicts, files, cost.

    The page is served on this machine only, to this user only, until Ctrl-C or until it has not been looked
    at for 15 minutes. The link works once; run the command again for another one. With --json, which opens
    no browser, the link is printed as JSON.
    """
    from dashboard.server import serve

    Client.connect().close()  # a daemon that cannot be started is better told here

    def show(link: str) -> None:
        if as_json:
            click.echo(json.dumps({"url": link}))
        else:
            click.echo(f"{link}\nThis link works once. Ctrl-C ends the page.")
        if not no_browser and not as_json:
            _open(link)

    try:
        serve(show)
    except KeyboardInterrupt:
        click.echo(err=True)
    return 0


def _open(link: str) -> None:
    """Open the link in a browser with windows; one in the terminal would keep the page from being served."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        browser = None
    in_terminal = type(browser) is webbrowser.GenericBrowser
    if browser is None or in_terminal or not browser.open(link):
        click.echo("No browser could be opened: open the link yourself.", err=True)
