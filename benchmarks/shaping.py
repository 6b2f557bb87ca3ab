"""Slow lines: a TCP proxy that delays what passes and limits how much of it passes per second.

For kernels without netem. Each line has a delay per direction and a bandwidth per direction, shared by all
its connections; several lines may also share one bandwidth, as the clouds at the far side of one uplink do. A
connection costs a round trip before its first byte. There is no loss and no slow start: a line is a pipe that
is as good as its figures. Delays are met to about a millisecond, that of the event loop's clock.

The proxy is a process of its own (`python -m benchmarks.shaping`). It gets the lines as one line of JSON on
standard input, says on which ports it listens, and then answers commands, one line of JSON each, until its
standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

__all__ = ["Line", "ShapedLines", "Traffic"]

_AHEAD = 0.05  # seconds that a connection may be ahead of its line
_REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Line:
    """A line to the server at a local port. `delay` in seconds one way, `rate` in bytes/s each way.

    Lines with the same `uplink` share the rate of the first of them in both directions.
    """

    target: int
    delay: float
    rate: float
    uplink: str = ""


@dataclass(frozen=True)
class Traffic:
    """Bytes that one line has taken since it was made."""

    up: int
    down: int


class ShapedLines:
    """The proxy process; as a context manager it ends with the block."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shaping"],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ports: list[int] = self._ask([asdict(line) for line in lines])

    def __enter__(self) -> ShapedLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def stall(self, line: int, *, stalled: bool) -> None:
        """Let nothing pass in either direction, or everything that was held up."""
        self._ask({"stall": line, "stalled": stalled})

    def traffic(self) -> list[Traffic]:
        """What each line has taken so far."""
        return [Traffic(up, down) for up, down in self._ask({"traffic": True})]

    def _ask(self, question: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the shaping proxy has ended")
        return json.loads(answer)


class _Way:
    """One direction: bytes leave one after the other."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0

    def leave(self, size: int, now: float) -> float:
        """When the last of these bytes has left."""
        self._free_at = max(self._free_at, now) + size / self._rate
        return self._free_at


class _Path:
    """One line at work."""

    def __init__(self, line: Line, up: _Way, down: _Way) -> None:
        self.line = line
        self.ways = (up, down)
        self.passed = [0, 0]
        self.stalled = False
        self._held: list[tuple[asyncio.WriteTransport, bytes]] = []
        self._waiting: list[asyncio.Transport] = []

    def deliver(self, to: asyncio.WriteTransport, data: bytes) -> None:
        if self.stalled:
            self._held.append((to, data))
        elif not to.is_closing():
            to.write(data)

    def release(self) -> None:
        self.stalled = False
        held, self._held = self._held, []
        for to, data in held:
            self.deliver(to, data)
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            if not transport.is_closing():
                transport.resume_reading()

    def hold(self, transport: asyncio.Transport) -> None:
        """Take nothing more from this end of a connection until the line is released."""
        transport.pause_reading()
        self._waiting.append(transport)


class _End(asyncio.Protocol):
    """One end of a connection: passes on what it receives, `way` 0 from the client, 1 from the server."""

    def __init__(self, path: _Path, way: int) -> None:
        self._path = path
        self._way = way
        self._transport: asyncio.Transport | None = None
        self.other: asyncio.Transport | None = None
        self._early = b""  # came although reading was paused, as it may in connection_made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._way == 0:
            self._transport.pause_reading()
            asyncio.get_running_loop().create_task(self._connect(self._transport))

    async def _connect(self, transport: asyncio.Transport) -> None:
        line = self._path.line
        await asyncio.sleep(2 * line.delay)
        far = _End(self._path, 1)
        far.other = transport
        try:
            made, _ = await asyncio.get_running_loop().create_connection(
                lambda: far, "127.0.0.1", line.target
            )
        except OSError:
            transport.abort()
            return
        self.other = made
        if not transport.is_closing():
            transport.resume_reading()
            if self._early:
                self.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self.other is None:
            self._early += data
            return
        path, loop = self._path, asyncio.get_running_loop()
        now = loop.time()
        leaves = path.ways[self._way].leave(len(data), now)
        path.passed[self._way] += len(data)
        loop.call_at(leaves + path.line.delay, path.deliver, self.other, data)
        if path.stalled:
            path.hold(self._transport)
        elif leaves - now > _AHEAD:
            self._transport.pause_reading()
            loop.call_at(leaves - _AHEAD / 2, self._go_on)

    def _go_on(self) -> None:
        assert self._transport is not None
        if self._path.stalled:
            self._path.hold(self._transport)
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None:
            loop = asyncio.get_running_loop()
            leaves = self._path.ways[self._way].leave(0, loop.time())
            loop.call_at(leaves + self._path.line.delay, self.other.close)


class _Proxy:
    def __init__(self, lines: Sequence[Line]) -> None:
        shared: dict[str, tuple[_Way, _Way]] = {}
        self._paths = []
        for number, line in enumerate(lines):
            ways = shared.setdefault(line.uplink or f"line {number}", (_Way(line.rate), _Way(line.rate)))
            self._paths.append(_Path(line, *ways))

    async def listen(self) -> list[int]:
        loop, ports = asyncio.get_running_loop(), []
        for path in self._paths:
            server = await loop.create_server(lambda path=path: _End(path, 0), "127.0.0.1", 0)  # type: ignore[misc]
            ports.append(int(server.sockets[0].getsockname()[1]))
        return ports

    def answer(self, command: dict[str, Any]) -> object:
        if "stall" in command:
            path = self._paths[command["stall"]]
            if command["stalled"]:
                path.stalled = True
            else:
                path.release()
            return True
        return [path.passed for path in self._paths]


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    proxy = _Proxy([Line(**facts) for facts in json.loads(await commands.readline())])
    print(json.dumps(await proxy.listen()), flush=True)
    while command := await commands.readline():
        print(json.dumps(proxy.answer(json.loads(command))), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve())
