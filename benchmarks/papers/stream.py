"""`python -m benchmarks.papers.stream`: bytes over far links as more devices follow one (Pond 6.4, Fig. 7).

One device at one of seven sites writes, and all others are to have its updates. All are linked with each
other, as devices that see each other are. What they send is what the product's log exchange (`sync.exchange`)
sends; the links are in this process, time is virtual, and a message takes as long as it is far. Pond has a
tree for this.

Counted is what links carry of the log: updates, and what both sides say about them. Contents are not in it.

Writes `stream.json`, `.md` and, with matplotlib, a plot.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.pages import Page, Section, draw_again, options_of, publish
from benchmarks.papers import points
from benchmarks.plots import Curve, plot_curves
from benchmarks.report import significant, terminal
from benchmarks.targets import Target
from sync.exchange import Deliver, Exchange, Failed, Send
from sync.identity import DeviceKey, Members
from sync.outcome import Inbox
from sync.update import decode_signed
from tests.sync.support import Device as LogDevice

_SITES: Final = (0.0, 6.0, 11.0, 25.0, 30.0, 40.0, 75.0)
"""Where the sites are: ms one way from the writer's. Six in the United States, one in the United Kingdom."""
_NEAR: Final = 0.5
"""ms within a site, and that each link takes at least."""
_FAR: Final = 20.0
_DEVICES: Final = (10, 20, 30, 40, 50)
_UPDATES: Final = 20
_EVERY: Final = 1000.0  # ms
_WHERE: Final = "6.4, Fig. 7: % of bytes over links of more than 20 ms, by replicas"
_WORK: Final = 2.0  # ms until an update that has come is durable, and is passed on


class _End:
    """One side of a link."""

    def __init__(self, device: LogDevice) -> None:
        self.device = device
        self.exchange = Exchange(device, lambda: None)
        self.inbox = Inbox()


class _Mesh:
    """Devices that are all linked with each other."""

    def __init__(self, devices: int) -> None:
        keys = [DeviceKey.from_seed(bytes([1 + number]) * 32) for number in range(devices)]
        members = Members(key.public for key in keys)
        self.devices = [LogDevice(key, members) for key in keys]
        self._sites = [_SITES[number % len(_SITES)] for number in range(devices)]
        self._ends: dict[tuple[int, int], _End] = {}
        self._events: list[tuple[float, int, int, int, bytes | None]] = []
        self._order = itertools.count()
        self._now = 0.0
        self.sent: dict[bool, int] = {}
        """Bytes over links that are far, and over others."""
        self.copies = 0
        """Updates that have arrived, whether they were known or not."""
        for one, other in itertools.permutations(range(devices), 2):
            self._ends[one, other] = _End(self.devices[one])
        for (one, other), end in self._ends.items():
            self._send(one, other, end.exchange.begin())
        self.run()
        self.sent, self.copies = {True: 0, False: 0}, 0

    def _latency(self, one: int, other: int) -> float:
        return _NEAR + abs(self._sites[one] - self._sites[other])

    def _send(self, one: int, other: int, messages: Sequence[bytes]) -> None:
        latency = self._latency(one, other)
        for message in messages:
            self.sent[latency > _FAR] = self.sent.get(latency > _FAR, 0) + len(message)
            heapq.heappush(self._events, (self._now + latency, next(self._order), one, other, message))

    def _grown(self, number: int) -> None:
        for other in range(len(self.devices)):
            if other != number:
                self._send(number, other, self._ends[number, other].exchange.advanced())

    def write(self) -> None:
        """The first device writes; everything comes to rest."""
        self.devices[0].write((b"name", bytes(100)))
        self._grown(0)
        self.run()
        self._now += _EVERY

    def run(self) -> None:
        while self._events:
            self._now, _, one, other, message = heapq.heappop(self._events)
            if message is None:
                self._grown(one)
            else:
                self._arrive(one, other, message)

    def _arrive(self, one: int, other: int, message: bytes) -> None:
        end = self._ends[other, one]
        for action in end.exchange.receive(message):
            match action:
                case Send():
                    self._send(other, one, [action.message])
                case Deliver():
                    self.copies += len(action.updates)
                    known = len(end.device.order)
                    for data in action.updates:
                        end.inbox.add(data, lambda data: end.device.receive(decode_signed(data)))
                    if len(end.device.order) > known:
                        due = self._now + _WORK
                        heapq.heappush(self._events, (due, next(self._order), other, other, None))
                case Failed():
                    raise SystemExit(action.reason)


@dataclass(frozen=True)
class Streamed:
    """Of so many devices."""

    devices: int
    update: int
    """Bytes of one."""
    far: float
    near: float
    """Bytes for each update."""
    copies: float
    """How often each device is sent an update."""

    @property
    def percent(self) -> float:
        """Of the bytes that went over far links."""
        return 100 * self.far / (self.far + self.near)


def measure(devices: int) -> Streamed:
    """Let the first of so many devices write."""
    mesh = _Mesh(devices)
    for _ in range(_UPDATES):
        mesh.write()
    if any(len(one.order) != _UPDATES for one in mesh.devices):
        raise SystemExit("a device lacks an update")
    size = len(mesh.devices[0].order[-1].data)
    copies = mesh.copies / _UPDATES / (devices - 1)
    return Streamed(devices, size, mesh.sent[True] / _UPDATES, mesh.sent[False] / _UPDATES, copies)


def _page(found: Sequence[Streamed]) -> Page:
    theirs = {int(one): percent for one, [percent] in points("pond", _WHERE).items()}
    page = Page("stream")
    page.sections.append(
        Section(
            f"Over links of more than {_FAR:g} ms, by devices",
            ["", *(str(one.devices) for one in found)],
            [
                ["% of the bytes", *(significant(one.percent) for one in found)],
                ["the paper", *(significant(theirs.get(one.devices)) for one in found)],
                ["kB for each update", *(significant(one.far / 1000) for one in found)],
                ["times a device is sent an update", *(significant(one.copies) for one in found)],
            ],
        )
    )
    for one in found:
        if one.devices in theirs:
            label = f"% of bytes over links of more than {_FAR:g} ms, {one.devices} devices: the paper's"
            page.targets.append(Target(label, theirs[one.devices], one.percent))
    page.targets.append(
        Target(
            f"times each of {found[-1].devices} devices is sent an update; along a tree: once",
            2,
            found[-1].copies,
        )
    )
    page.notes = [
        f"{_UPDATES} updates of {found[0].update} bytes by one device, one each second, while nothing else "
        f"happens. Seven sites, {', '.join(f'{one:g}' for one in _SITES)} ms one way from the writer's, with "
        f"about as many devices at each; {_NEAR:g} ms within one. The paper's latencies are PlanetLab's of "
        "2003, so shares compare roughly; its bytes are those of contents, too, and sent along a tree. Ours "
        "have what both sides of a link say about updates.",
        "Devices of ours are all linked with each other. Each that has taken an update pushes it to all that "
        "have not shown that they have it: so nearly each link carries it, and what far links carry grows "
        "with the square of the number of devices. **That is made for a few devices of a person, not for "
        "fifty.**",
        "Simulated with the product's exchange and without its threads, queues and TLS; a device passes an "
        f"update on after {_WORK:g} ms. Contents are fetched from linked devices, the nearest first, and not "
        "in it.",
    ]
    page.figures = {"streams": [asdict(one) for one in found]}
    return page


def _draw(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    found = [Streamed(**one) for one in figures["streams"]]
    theirs = points("pond", _WHERE)
    x = [float(one.devices) for one in found]
    panels = {
        f"% of bytes over links of more than {_FAR:g} ms, by devices (Fig. 7)": [
            Curve("here, linked with all", x, [one.percent for one in found]),
            Curve("Pond", [*map(float, theirs)], [percent for [percent] in theirs.values()], stated=True),
        ],
        "times a device is sent an update": [
            Curve("here, linked with all", x, [one.copies for one in found]),
            Curve("a tree", x, [1.0] * len(x), stated=True),
        ],
    }
    return plot_curves(folder, "stream", panels, legends=True)


def main(argv: list[str] | None = None) -> None:
    """Count, print, and write stream.json, .md and a plot to benchmarks/results."""
    options = options_of("papers.stream", __doc__, draws=True).parse_args(argv)
    if options.draw:
        draw_again("stream", options.results, _draw)
        return
    found = []
    for devices in _DEVICES:
        found.append(measure(devices))
        terminal().print(f"[dim]{devices} devices: {found[-1].percent:.0f} %[/]")
    publish(_page(found), options.results, _draw)


if __name__ == "__main__":
    main()
