"""hybrisfs metrics"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import click

from cli.usage import command
from hybrisfs.api.traffic import METRICS_TYPE, MetricsRequest
from hybrisfs.client import Client, HybrisError

_PATIENCE: Final = 10.0  # seconds that a client may take to ask


@command(epilog="\b\nExamples:\n  hybrisfs metrics\n  hybrisfs metrics --serve 9797")
@click.option(
    "--serve",
    "port",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    help="Answer http://127.0.0.1:PORT/metrics until Ctrl-C.",
)
def metrics(port: int | None) -> None:
    """Print figures for a monitoring system, in the text format of Prometheus.

    With --serve, every user of this machine can read them: names of volumes, clouds and machines are among
    them, names of files are not.
    """
    if port is None:
        with Client.connect() as client:
            click.echo(client.call(MetricsRequest()).text, nl=False)
        return
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    except OSError as error:
        raise click.ClickException(f"cannot listen at port {port}: {error.strerror}") from error
    click.echo(f"http://127.0.0.1:{port}/metrics, until Ctrl-C", err=True)
    with server:
        server.serve_forever()


def scrape() -> tuple[int, str, str]:
    """The status, type and body of an answer: 503 while the daemon does not run."""
    try:
        with Client.connect(start=False) as client:
            return 200, METRICS_TYPE, client.call(MetricsRequest()).text
    except HybrisError as error:
        return 503, "text/plain; charset=utf-8", f"{error}\n"


class _Handler(BaseHTTPRequestHandler):
    """Answers one request on a connection."""

    server_version = "hybrisfs"
    sys_version = ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Named by http.server."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        # A name that was bound to 127.0.0.1 since is another site's page that asks.
        if host not in ("127.0.0.1", "localhost"):
            self.send_error(421)
        elif self.path != "/metrics":
            self.send_error(404)
        else:
            status, kind, text = scrape()
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: it is asked every few seconds."""
