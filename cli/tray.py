"""hybrisfs tray"""

from __future__ import annotations

import click

from cli.usage import command


@command(epilog="\b\nExamples:\n  hybrisfs tray --autostart\n  hybrisfs tray &")
@click.option(
    "--autostart/--no-autostart",
    "autostart",
    default=None,
    help="Have the desktop start it with each session, or not.",
)
def tray(autostart: bool | None) -> int:
    """Show an icon in the panel: whether everything is safe, and a menu.

    The menu opens folders and the page, and pauses transfers. The icon stays until the session ends or it is
    hidden. KDE, XFCE, Cinnamon, MATE and LXQt show it; GNOME does with its extension AppIndicator.

    The package for Debian and Ubuntu starts it with each session. Without a volume, it stays hidden.
    """
    from tray.session import serve, set_autostart

    if autostart is not None:
        path = set_autostart(wanted=autostart)
        does = "starts" if autostart else "does not start"
        click.echo(f"The desktop {does} it with each session: {path}")
        return 0
    if not serve():
        click.echo("There is an icon already.")
    return 0
