"""hybrisfs daemon"""

from __future__ import annotations

import click

from hybrisfs.client import NotRunningError, serve, stop_daemon


@click.command(epilog="\b\nExamples:\n  hybrisfs daemon\n  hybrisfs daemon --stop")
@click.option("--stop", is_flag=True, help="Unmount everything and end the daemon that runs.")
def daemon(stop: bool) -> int:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C; it then unmounts everything and ends.

    This is what a service manager runs. Other commands start a daemon in the background when there is none.
    """
    if not stop:
        return serve()
    try:
        stop_daemon()
    except NotRunningError:
        click.echo("The daemon was not running.")
    else:
        click.echo("The daemon has ended. What was mounted is mounted again when it next starts.")
    return 0
