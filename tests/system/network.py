"""A local network of network namespaces: each machine has one cable to a switch, and cables can be pulled."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import pytest

__all__ = ["Network"]

_numbers = itertools.count(1)


class Network:
    """A switch and the machines at it. As a context manager it leaves no namespace behind.

    Everything is in namespaces of its own, the switch too: the network of this machine is left alone. Needs
    root and iproute2; skips the test where they are missing.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can make network namespaces")
        for program in ("ip", "nsenter"):
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
        self._prefix = f"hfs{os.getpid()}n{next(_numbers)}"
        self._machines: list[str] = []
        self._hidden: list[str] = []

    def __enter__(self) -> Network:
        switch = self._add(self._switch)
        if switch.returncode != 0:
            pytest.skip(f"no network namespaces here: {switch.stderr.strip()}")
        self._in(self._switch, "link", "add", "switch", "type", "bridge")
        self._in(self._switch, "link", "set", "switch", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for namespace in (*map(self._namespace, [*self._machines, *self._hidden]), self._switch):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)

    def add(self, machine: str) -> list[str]:
        """A machine at the switch; returns the command prefix that runs a program on it.

        Only its network is its own: what it mounts, everybody sees.
        """
        self._machines.append(machine)
        namespace, port = self._namespace(machine), f"port{len(self._machines)}"
        assert self._add(namespace).returncode == 0
        self._in(namespace, "link", "set", "lo", "up")
        self._in(self._switch, "link", "add", port, "type", "veth", "peer", "eth0", "netns", namespace)
        self._in(self._switch, "link", "set", port, "master", "switch", "up")
        self._in(namespace, "address", "add", f"10.77.0.{len(self._machines)}/24", "dev", "eth0")
        self._in(namespace, "link", "set", "eth0", "up")
        return self.prefix(machine)

    def address(self, machine: str) -> str:
        """Of a machine at the switch."""
        return f"10.77.0.{self._machines.index(machine) + 1}"

    def add_behind_nat(self, machine: str) -> list[str]:
        """A machine in a home of its own: a router at the switch lets it connect to others, and nobody to it.
        All homes have the same addresses."""
        if shutil.which("nft") is None:
            pytest.skip("nftables is not installed")
        router, namespace = f"{machine}-router", self._namespace(machine)
        self.add(router)
        self._hidden.append(machine)
        assert self._add(namespace).returncode == 0
        at_router = self._namespace(router)
        self._in(namespace, "link", "set", "lo", "up")
        self._in(at_router, "link", "add", "home", "type", "veth", "peer", "eth0", "netns", namespace)
        for where, name, number in ((at_router, "home", 1), (namespace, "eth0", 2)):
            self._in(where, "address", "add", f"192.168.0.{number}/24", "dev", name)
            self._in(where, "link", "set", name, "up")
        self._in(namespace, "route", "add", "default", "via", "192.168.0.1")
        rules = (
            "add table ip nat; add chain ip nat out { type nat hook postrouting priority 100 ; };"
            "add rule ip nat out oifname eth0 masquerade"
        )
        for command in (["sysctl", "-qw", "net.ipv4.ip_forward=1"], ["nft", rules]):
            subprocess.run([*self.prefix(router), *command], check=True, capture_output=True)
        return self.prefix(machine)

    def prefix(self, machine: str) -> list[str]:
        """The command prefix that runs a program on this machine."""
        return ["nsenter", f"--net=/run/netns/{self._namespace(machine)}", "--"]

    def cut(self, *machines: str) -> None:
        """Pull the cables of these machines, of all by default."""
        self._set(machines, "down")

    def heal(self, *machines: str) -> None:
        """Plug the cables in again."""
        self._set(machines, "up")

    @contextmanager
    def without(self, *machines: str) -> Iterator[None]:
        """The cables of these machines, of all by default, are out within the block."""
        self.cut(*machines)
        try:
            yield
        finally:
            self.heal(*machines)

    def swallow(self, machine: str) -> None:
        """The switch loses all packets of this machine, which does not notice: its cable is in."""
        self._in(self._switch, "link", "set", self._port(machine), "nomaster")

    def hang_up(self, machine: str) -> None:
        """Forget its connections, with all that the kernel has yet to send, as when the power goes."""
        subprocess.run([*self.prefix(machine), "ss", "--tcp", "--kill"], check=True, capture_output=True)

    def deliver(self, machine: str) -> None:
        """The switch works again for this machine."""
        self._in(self._switch, "link", "set", self._port(machine), "master", "switch")

    @property
    def _switch(self) -> str:
        return f"{self._prefix}-switch"

    def _namespace(self, machine: str) -> str:
        return f"{self._prefix}-{machine}"

    def _set(self, machines: tuple[str, ...], state: str) -> None:
        for machine in machines or self._machines:
            self._in(self._switch, "link", "set", self._port(machine), state)

    def _port(self, machine: str) -> str:
        return f"port{self._machines.index(machine) + 1}"

    @staticmethod
    def _add(namespace: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ip", "netns", "add", namespace], check=False, capture_output=True, text=True)

    @staticmethod
    def _in(namespace: str, *words: str) -> None:
        subprocess.run(["ip", "-n", namespace, *words], check=True, capture_output=True)
