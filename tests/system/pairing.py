"""Invitations as a script handles them, and devices that were paired."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tests.system.deadline import until
from tests.system.device import CommandFailedError, Device
from tests.system.trees import Entry, snapshot

__all__ = ["Inviting", "all_sound", "device_list", "forked", "names", "pair", "same_trees", "this_device"]


class Inviting:
    """`hybrisfs device invite --json --yes` under way; `code` is what the other device is to be given.

    As a context manager it ends the command when the test did not.
    """

    def __init__(self, device: Device, *options: str) -> None:
        self._process = device.start("device", "invite", *options, "--json", "--yes")
        facts = self._next()
        if facts is None:
            done = self._finish()
            raise CommandFailedError(f"device invite: exit {done.returncode}\n{done.stdout}{done.stderr}")
        self.code = str(facts["code"])
        self.expires = float(facts["expires"])

    def __enter__(self) -> Inviting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _next(self) -> dict[str, Any] | None:
        """The next object that the command prints; None at the end."""
        assert self._process.stdout is not None
        text = ""
        for line in self._process.stdout:
            text += line
            if line == "}\n":
                facts = json.loads(text)
                assert isinstance(facts, dict)
                return facts
        return None

    def _finish(self) -> subprocess.CompletedProcess[str]:
        out, err = self._process.communicate(timeout=30)
        return subprocess.CompletedProcess(self._process.args, self._process.returncode, out, err)

    def result(self) -> tuple[str, dict[str, Any]]:
        """Wait for the end, which must be a success: the comparison string, and who was let in."""
        compared, admitted = self._next(), self._next()
        done = self._finish()
        if done.returncode != 0 or compared is None or admitted is None:
            raise CommandFailedError(f"device invite: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return str(compared["comparison"]), admitted

    def failure(self) -> subprocess.CompletedProcess[str]:
        """Wait for the end, which must be a failure."""
        done = self._finish()
        assert done.returncode != 0, f"device invite succeeded:\n{done.stdout}"
        return done

    def interrupt(self, signal: int) -> subprocess.CompletedProcess[str]:
        """Send a signal, as Ctrl-C does, and wait for the end."""
        self._process.send_signal(signal)
        return self._finish()


def pair(inviter: Device, joiner: Device, name: str) -> None:
    """Let *joiner*, which is to be called *name*, into the volume of *inviter*."""
    with Inviting(inviter, inviter.volume) as inviting:
        joiner.run("device", "join", inviting.code, "--name", name, "--as", joiner.volume, "--yes")
        inviting.result()
    joiner.clouds = inviter.clouds


def device_list(device: Device) -> list[dict[str, Any]]:
    """What `device list --json` says."""
    devices = json.loads(device.run("device", "list", device.volume, "--json"))["devices"]
    assert isinstance(devices, list)
    return devices


def this_device(device: Device) -> dict[str, Any]:
    """What it says there about itself."""
    [found] = [one for one in device_list(device) if one["this"]]
    return found


def names(device: Device) -> set[str]:
    """What this device calls the devices of the volume."""
    return {one["name"] for one in device_list(device)}


def forked(device: Device) -> set[str]:
    """The names of the devices that this one knows to have forked."""
    return {one["name"] for one in device_list(device) if one["forked"]}


def same_trees(devices: Sequence[Device], seconds: float = 60.0) -> dict[bytes, Entry]:
    """Wait until all mounts show the same tree, to the last byte, and return that."""

    def look() -> tuple[dict[bytes, Entry]] | None:
        try:
            trees = [snapshot(device.mountpoint) for device in devices]
        except (FileNotFoundError, NotADirectoryError):  # changed while it was read
            return None
        return (trees[0],) if all(tree == trees[0] for tree in trees) else None

    try:
        found = until(look, "all devices to show the same tree", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_differences(devices)}") from None

    assert found is not None
    return found[0]


def all_sound(devices: Sequence[Device], *, clouds: bool = True) -> None:
    """`fsck` finds nothing amiss on any of the devices, nor, with *clouds*, when they have told the clouds
    all, there."""
    for device in devices if clouds else ():
        device.sync()
    for device in devices:
        done = device.fsck(clouds=clouds)
        assert done.returncode == 0, f"{device.root}:\n{done.stdout}{done.stderr}"


def _differences(devices: Sequence[Device]) -> str:
    trees = [snapshot(device.mountpoint) for device in devices]
    lines = []
    for path in sorted(set().union(*trees)):
        entries = [tree.get(path) for tree in trees]
        if any(entry != entries[0] for entry in entries):
            lines.append(f"{path!r}: " + "\n    ".join(map(repr, entries)))
    return "\n".join(lines[:20])
