"""A device with its service in a process of its own, for tests in network namespaces.

    python -m tests.peers.device_process NUMBER [HOST]

With HOST it looks for nobody but a device there that was started so, too, and tries again only after an hour.
Commands are lines of standard input: `write TEXT`, `close`. Whatever happens is told on standard output as a
line of JSON: the devices linked, by number, the addresses where they are, and the updates that are here.
"""

from __future__ import annotations

import json
import sys
import threading

from msgspec.structs import replace

from hybrisfs.peers.settings import format_place
from tests.peers.support import QUICK, Device, key

_PORT = 4711
TELLING = threading.Lock()
NUMBERS = {key(number).device_id: number for number in (1, 2, 3)}


class Reporting(Device):
    """Tells what happens."""

    def report(self) -> None:
        with TELLING:
            status = self.service.status()
            linked = {NUMBERS[link.device_id]: format_place(link.place).rpartition(":")[0] for link in status}
            updates = [update.decode() for update in self.log.all()]
            print(json.dumps({"linked": linked, "updates": updates}), flush=True)

    def _notify(self) -> None:
        super()._notify()
        self.report()

    def _receive(self, device: bytes, updates: tuple[bytes, ...]) -> None:
        super()._receive(device, updates)
        self.report()


def main() -> None:
    """Run until `close` or the end of the input."""
    configured = replace(QUICK, discover=True, look_every=0.2, silence=1.5)
    if len(sys.argv) > 2:
        configured = replace(
            configured,
            discover=False,
            port=_PORT,
            addresses=((sys.argv[2], _PORT),),
            first_retry=3600,
            last_retry=3600,
        )
    device = Reporting(int(sys.argv[1]), configured)
    device.service.start()
    for line in sys.stdin:
        command, _, text = line.strip().partition(" ")
        if command == "close":
            break
        device.write(text.encode())
    device.service.close()


if __name__ == "__main__":
    main()
