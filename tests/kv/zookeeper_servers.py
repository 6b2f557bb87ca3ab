"""A real ZooKeeper of one or three nodes on this machine, whose nodes can be killed, stopped and started.

packaging/test-servers.sh installs ZooKeeper; it runs on Java 11 or newer.
"""

from __future__ import annotations

import shutil
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.backends.servers import missing, program
from tests.kv.server_process import ServerProcess

__all__ = ["ZookeeperCluster", "ZookeeperNode", "zookeeper_cluster"]

_PATIENCE: Final = 60.0  # seconds
_ANSWER_SECONDS: Final = 5.0
_PAUSE: Final = 0.05
_CLOSE_SESSION: Final = -11  # ZooDefs.OpCode
_ATTEMPTS: Final = 3  # a free port may be taken by somebody else before the server has it
_SETTINGS: Final = """\
tickTime=500
initLimit=20
syncLimit=6
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""


class ZookeeperNode(ServerProcess):
    """One server."""

    def __init__(self, folder: Path, number: int, port: int, members: str, settings: Sequence[str]) -> None:
        """*members*: the lines that name all servers; empty for one alone. *settings*: more lines of the
        configuration."""
        self.port = port
        home = folder / f"{number}"
        home.mkdir()
        (home / "myid").write_text(f"{number}\n")
        lines = [
            _SETTINGS,
            f"dataDir={home}\n",
            f"clientPort={port}\n",
            "clientPortAddress=127.0.0.1\n",
            members,
        ]
        (folder / f"{number}.cfg").write_text("".join([*lines, *(f"{one}\n" for one in settings)]))
        command = [
            *(
                program("zookeeper"),
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-Xmx96m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
            ),
            # What counts here is what happens, not how long the disk takes.
            *("-Dzookeeper.forceSync=no", "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
            str(folder / f"{number}.cfg"),
        ]
        super().__init__(command, folder / f"{number}.log")

    def wait_until_ready(self) -> None:
        """Wait until it serves clients."""
        until = time.monotonic() + _PATIENCE
        while not self.mode:
            assert time.monotonic() < until and not self.has_ended, self._log.read_text()
            time.sleep(_PAUSE)

    @property
    def mode(self) -> str:
        """``leader``, ``follower`` or ``standalone``; empty while it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), _ANSWER_SECONDS) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""
        modes = [line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")]
        return modes[0] if modes else ""


class ZookeeperCluster:
    """Its nodes."""

    def __init__(self, nodes: list[ZookeeperNode]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return "zookeeper://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def leader(self) -> ZookeeperNode:
        return next(node for node in self.nodes if node.mode == "leader")

    def expire(self, session: tuple[int, bytes]) -> None:
        """End a session as if its client had been silent for too long. When the client takes it back in
        between, try again."""
        number, password = session
        size = len(password)
        connect = struct.pack(f">iqiqi{size}s?", 0, 0, 10_000, number, size, password, False)
        close = struct.pack(">ii", 1, _CLOSE_SESSION)
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with (
                suppress(ConnectionError),
                socket.create_connection(("127.0.0.1", self.nodes[0].port), _PATIENCE) as connection,
            ):
                (timeout,) = struct.unpack_from(">i", _ask(connection, connect), 4)
                if timeout <= 0:  # it is over
                    return
                (error,) = struct.unpack_from(">i", _ask(connection, close), 12)
                if error == 0:
                    return
        raise AssertionError("the session cannot be taken over")


def _ask(connection: socket.socket, request: bytes) -> bytes:
    """The answer of ZooKeeper; each has its length in front. Raises ConnectionError."""
    connection.sendall(struct.pack(">i", len(request)) + request)
    with connection.makefile("rb") as answers:
        head = answers.read(4)
        answer = answers.read(int.from_bytes(head, "big"))
    if not answer:
        raise ConnectionError("the server has ended the connection")
    return answer


@contextmanager
def zookeeper_cluster(
    folder: Path, size: int = 1, settings: Sequence[str] = ()
) -> Iterator[ZookeeperCluster]:
    """A cluster that is ready; it ends with the context."""
    if shutil.which("java") is None:
        missing("java")
    folder.mkdir(exist_ok=True)
    with ExitStack() as ends:
        for attempt in range(_ATTEMPTS):
            home = folder / f"{attempt}"
            home.mkdir()
            nodes = _nodes(home, size, settings)
            for node in nodes:
                ends.callback(node.kill)
                node.start()
            while not all(node.mode for node in nodes) and not any(node.has_ended for node in nodes):
                time.sleep(_PAUSE)
            if not any(node.has_ended for node in nodes):
                break
            for node in nodes:
                node.kill()
        for node in nodes:
            node.wait_until_ready()
        yield ZookeeperCluster(nodes)


def _nodes(folder: Path, size: int, settings: Sequence[str]) -> list[ZookeeperNode]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(3 * size)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    places = [f"127.0.0.1:{ports[size + 2 * one]}:{ports[size + 2 * one + 1]}" for one in range(size)]
    members = "".join(f"server.{one + 1}={place}\n" for one, place in enumerate(places)) if size > 1 else ""
    return [ZookeeperNode(folder, one + 1, ports[one], members, settings) for one in range(size)]
