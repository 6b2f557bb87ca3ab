"""Devices in network namespaces of their own, on a switch whose cables are pulled.

They find each other by multicast DNS alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.support import LONG

REPOSITORY = Path(__file__).resolve().parents[2]


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)


class Machine:
    """A namespace with a device in it, and a cable to the switch."""

    def __init__(
        self, network: Network, number: int, *addresses: str, ipv6: bool = True, host: str | None = None
    ) -> None:
        self.network = network
        self.number = number
        self.name = f"{network.prefix}m{number}"
        self._port = f"{network.prefix}p{number}"
        self._options = [host] if host else []
        self._state: dict[str, Any] = {"linked": {}, "updates": []}
        self._changed = threading.Condition()
        ip("netns", "add", self.name)
        ip("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self._port, "netns", network.switch)
        if not ipv6:
            self._run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        self._ip("link", "set", "lo", "up")
        self._ip("link", "set", "eth0", "up")
        self.plug_in()
        ip("-n", network.switch, "link", "set", self._port, "up")
        for address in addresses:
            self.add_address(address)
        self.process = self._start()

    def _ip(self, *arguments: str) -> None:
        ip("-n", self.name, *arguments)

    def _run(self, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", self.name, *command], check=True)

    def plug_in(self) -> None:
        ip("-n", self.network.switch, "link", "set", self._port, "master", "br0")

    def pull_out(self) -> None:
        """Cut it off so that it cannot know: its own interface stays up."""
        ip("-n", self.network.switch, "link", "set", self._port, "nomaster")

    def set_carrier(self, there: bool) -> None:
        """Plug the cable in or out, which its own interface notices."""
        ip("-n", self.network.switch, "link", "set", self._port, "up" if there else "down")

    def add_address(self, address: str) -> None:
        self._ip("address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))

    def remove_address(self, address: str) -> None:
        self._ip("address", "del", address, "dev", "eth0")

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                *("ip", "netns", "exec", self.name),
                *(sys.executable, "-m", "tests.peers.device_process", str(self.number), *self._options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._changed:
                    self._state = json.loads(line)
                    self._changed.notify_all()

    def wait(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + 2 * LONG
        with self._changed:
            while not condition(self._state):
                assert self._changed.wait(deadline - time.monotonic()), self._state

    def wait_linked(self, *others: Machine) -> None:
        wanted = {str(other.number) for other in others}
        self.wait(lambda state: set(state["linked"]) == wanted)

    def wait_for(self, *updates: str) -> None:
        self.wait(lambda state: set(updates) <= set(state["updates"]))

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"write {text}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def restart(self) -> None:
        self.kill()
        self.process = self._start()

    def remove(self) -> None:
        self.kill()
        ip("netns", "del", self.name, check=False)


class Network:
    """A switch, in a namespace, too, so that nothing of it is left in the machine's own."""

    def __init__(self) -> None:
        self.prefix = f"h{os.getpid() % 100_000}"
        self.switch = f"{self.prefix}sw"
        self._machines: list[Machine] = []
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        ip("-n", self.switch, "link", "set", "br0", "up")

    def machine(self, number: int, *addresses: str, ipv6: bool = True, host: str | None = None) -> Machine:
        made = Machine(self, number, *addresses, ipv6=ipv6, host=host)
        self._machines.append(made)
        return made

    def remove(self) -> None:
        for machine in self._machines:
            machine.remove()
        ip("netns", "del", self.switch, check=False)


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        made = Network()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    try:
        yield made
    finally:
        made.remove()


@pytest.mark.parametrize(
    ("one", "two"),
    [("10.77.0.1/24", "10.77.0.2/24"), ("fd77::1/64", "fd77::2/64")],
    ids=["IPv4", "IPv6"],
)
def test_a_cable_is_pulled_and_plugged_in_again(network: Network, one: str, two: str) -> None:
    a, b = network.machine(1, one), network.machine(2, two)
    a.wait_linked(b)
    b.wait_linked(a)
    a.write("before")
    b.wait_for("before")
    b.pull_out()
    a.wait_linked()
    b.wait_linked()
    a.write("of-a")
    b.write("of-b")
    b.plug_in()
    a.wait_for("of-b")
    b.wait_for("of-a")


def test_a_cable_that_is_plugged_in_again_is_noticed_at_once(network: Network) -> None:
    a = network.machine(1, "10.77.0.1/24", host="10.77.0.2")
    b = network.machine(2, "10.77.0.2/24", host="10.77.0.1")
    a.wait_linked(b)
    b.set_carrier(False)
    a.wait_linked()
    b.wait_linked()
    b.set_carrier(True)
    a.wait_linked(b)


def test_an_address_changes(network: Network) -> None:
    """Nor is there any IPv6 on these machines."""
    a, b = (network.machine(number, f"10.77.0.{number}/24", ipv6=False) for number in (1, 2))
    a.wait(lambda state: state["linked"] == {"2": "10.77.0.2"})
    b.remove_address("10.77.0.2/24")
    b.add_address("10.77.0.222/24")
    a.wait(lambda state: state["linked"] == {"2": "10.77.0.222"})
    b.write("from elsewhere")
    a.wait_for("from elsewhere")


def test_a_killed_device_returns(network: Network) -> None:
    a, b = network.machine(1, "10.77.0.1/24"), network.machine(2, "10.77.0.2/24")
    a.wait_linked(b)
    b.kill()
    a.wait_linked()
    a.write("meanwhile")
    b.restart()
    b.wait_for("meanwhile")


def test_three_devices_two_of_which_never_meet(network: Network) -> None:
    a, b, c = (network.machine(number, f"10.77.0.{number}/24") for number in (1, 2, 3))
    a.wait_linked(b, c)
    a.pull_out()
    b.wait_linked(c)
    b.write("of-b")
    c.wait_for("of-b")
    b.kill()
    a.plug_in()
    a.wait_for("of-b")
