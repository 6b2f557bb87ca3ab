"""A real etcd of one or three nodes on this machine, whose nodes can be killed, stopped and started again.

packaging/test-servers.sh installs etcd.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import urllib3

from tests.backends.servers import program
from tests.kv.server_process import ServerProcess

__all__ = ["EtcdCluster", "EtcdNode", "etcd_cluster"]

_PATIENCE = 60.0  # seconds


class Far(NamedTuple):
    """Of nodes that are far from each other."""

    listening: Mapping[str, int]
    """The ports where they listen: these are not the ones by which others reach them."""
    heartbeat: int
    """Milliseconds, about a round trip."""


class EtcdNode(ServerProcess):
    """One server."""

    def __init__(
        self,
        folder: Path,
        name: str,
        client: int,
        peers: dict[str, int],
        tls: tuple[Path, Path] | None = None,
        far: Far | None = None,
    ) -> None:
        """*tls*: the files with certificate and key for clients."""
        listening = peers[name] if far is None else far.listening[name]
        heartbeat = 50 if far is None else far.heartbeat
        self.name = name
        self.port = client
        scheme = "http" if tls is None else "https"
        files = () if tls is None else ("--cert-file", str(tls[0]), "--key-file", str(tls[1]))
        command = [
            program("etcd"),
            *("--name", name, "--data-dir", str(folder / name), "--log-level", "error"),
            *("--listen-client-urls", f"{scheme}://127.0.0.1:{client}", *files),
            *("--advertise-client-urls", f"{scheme}://127.0.0.1:{client}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{listening}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peers[name]}"),
            *("--initial-cluster", ",".join(f"{one}=http://127.0.0.1:{port}" for one, port in peers.items())),
            # What counts here is what happens, not how long the disk takes.
            "--unsafe-no-fsync",
            *("--heartbeat-interval", str(heartbeat), "--election-timeout", str(10 * heartbeat)),
        ]
        super().__init__(command, folder / f"{name}.log")

    def wait_until_ready(self) -> None:
        """Wait until it serves linearizable reads."""
        retry = urllib3.Retry(
            600, backoff_factor=0.05, backoff_max=0.1, status_forcelist=(503,), allowed_methods=None
        )
        health = f"http://127.0.0.1:{self.port}/health"
        answer = urllib3.request("GET", health, retries=retry, timeout=_PATIENCE)
        assert answer.status == 200, self._log.read_text()

    @property
    def leads(self) -> bool:
        answer = urllib3.request(
            "POST", f"http://127.0.0.1:{self.port}/v3/maintenance/status", json={}, timeout=_PATIENCE
        ).json()
        return bool(answer["leader"] == answer["header"]["member_id"])


class EtcdCluster:
    """Its nodes."""

    def __init__(self, nodes: list[EtcdNode]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def leader(self) -> EtcdNode:
        return next(node for node in self.nodes if node.leads)


@contextmanager
def etcd_cluster(
    folder: Path,
    size: int = 1,
    tls: tuple[Path, Path] | None = None,
    *,
    reach: Callable[[Sequence[int]], Sequence[int]] | None = None,
    heartbeat: int = 50,
) -> Iterator[EtcdCluster]:
    """A cluster that is ready, unless it has *tls*; it ends with the context.

    *reach* is for nodes that are far from each other: of the ports where they listen, it makes the ports by
    which the others reach them. Their *heartbeat* is then as many milliseconds.
    """
    folder.mkdir(exist_ok=True)
    with ExitStack() as ends:
        probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 * size)]
        ports = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
        peers = {f"n{number}": ports[size + number] for number in range(size)}
        far = None
        if reach is not None:
            far = Far(peers, heartbeat)
            peers = dict(zip(peers, reach([*peers.values()]), strict=True))
        nodes = [EtcdNode(folder, name, ports[number], peers, tls, far) for number, name in enumerate(peers)]
        for node in nodes:
            ends.callback(node.kill)
            node.start()
        for node in nodes if tls is None else ():
            node.wait_until_ready()
        yield EtcdCluster(nodes)
