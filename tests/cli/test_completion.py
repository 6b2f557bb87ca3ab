"""What shells complete that only a daemon knows: clouds, devices, conflicts, containers."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import program
from hybrisfs import VERSION
from hybrisfs.daemon.only_one import ProcessLock
from hybrisfs.environment import SYSTEM
from hybrisfs.home import Home
from hybrisfs.wire import PROTOCOL, bind_socket, connect_socket
from tests.cli.test_program import completed, completed_by_bash
from tests.daemon.fake import FakeVolume
from tests.daemon.stored import Stored
from tests.facts import device_of
from tests.kv.rig import CONTAINER, Rig
from tests.system.shell import tool


@pytest.fixture
def locked(home: Home) -> Iterator[None]:
    """The daemon's lock is held, as it is while one runs."""
    home.prepare()
    with ProcessLock(home.daemon_lock, SYSTEM) as lock:
        lock.acquire()
        yield


@pytest.fixture
def listener(home: Home) -> Iterator[socket.socket]:
    """The control socket, at which nobody answers."""
    home.prepare()
    with bind_socket(home.socket) as listening:
        listening.settimeout(0)
        yield listening


@pytest.mark.parametrize("command", ["test", "rename", "retain", "adopt", "drain", "remove", "replace"])
def test_clouds(locked: None, photos: FakeVolume, command: str) -> None:
    assert completed(f"hybrisfs cloud {command} am") == ["plain,amber"]
    assert completed(f"hybrisfs cloud {command} --volume photos am") == ["plain,amber"]
    assert completed(f"hybrisfs cloud {command} x") == []
    assert completed(f"hybrisfs cloud {command} --volume elsewhere am") == []


@pytest.mark.parametrize("command", ["proof", "rename", "role", "remove", "keep"])
def test_devices(locked: None, photos: FakeVolume, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("a1" * 32, "desk"), ("b2" * 32, "laptop"), ("c3" * 32, "laptop"), ("d4" * 32, "l\nplain,--yes")]
    monkeypatch.setattr(photos, "devices", lambda: [device_of(id=one, name=name) for one, name in found])
    assert completed(f"hybrisfs device {command} d") == ["plain,d4d4d4d4", "plain,desk"]
    assert completed(f"hybrisfs device {command} b") == ["plain,b2b2b2b2"], "no name of two devices"
    assert completed(f"hybrisfs device {command} l") == []


@pytest.mark.parametrize("command", ["keep", "keep-all"])
def test_conflicts(locked: None, photos: FakeVolume, command: str) -> None:
    version = "docs/a (conflict, den, 2026-11-21).txt"
    rest = {"modified": "2026-11-21 10:00:00", "size": 1}
    photos.conflicting = [
        {"path": version, "of": "docs/a.txt", **rest},
        {"path": "docs/b\nplain,;x", "of": "docs/b*", **rest},
    ]
    assert completed(f"hybrisfs conflicts {command} do") == [
        "file,do",
        "plain,docs/a\\\\ \\\\(conflict,\\\\ den,\\\\ 2026-11-21\\\\).txt",
        "plain,docs/a.txt",
    ]
    fish = {"_HYBRISFS_COMPLETE": "fish_complete", "COMP_WORDS": f"hybrisfs conflicts {command}"}
    done = CliRunner(env={**fish, "COMP_CWORD": "docs/a\\ \\("}).invoke(program)
    assert done.stdout.splitlines()[1:] == [f"plain,{version}"], "fish quotes it itself"


def test_bash_inserts_a_conflict_as_one_word(locked: None, photos: FakeVolume, home: Home) -> None:
    rest = {"of": "$(x) & 'y'.txt", "modified": "2026-11-21 10:00:00", "size": 1}
    photos.conflicting = [{"path": "$(x) & 'y' (conflict, den, 2026-11-21).txt", **rest}]
    found = completed_by_bash(home, "hybrisfs", "conflicts", "keep", r"\$\(x")
    assert [shlex.split(one) for one in found] == [[photos.conflicting[0]["path"]], [rest["of"]]]


def test_fish_takes_names_with_commas_whole(locked: None, photos: FakeVolume, home: Home) -> None:
    version = "a (conflict, den, 2026-11-21).txt"
    photos.conflicting = [{"path": version, "of": "a.txt", "modified": "2026-11-21 10:00:00", "size": 1}]
    script = '_HYBRISFS_COMPLETE=fish_source hybrisfs | source; complete -C "hybrisfs conflicts keep a"'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**home.environment(), "PATH": path}
    command = [tool("fish"), "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert version in done.stdout.splitlines()


@pytest.mark.parametrize("command", ["drop", "migrate", "list"])
def test_containers(locked: None, photos: FakeVolume, command: str, tmp_path: Path) -> None:
    assert completed(f"hybrisfs kv {command} photos {CONTAINER[:1]}") == [], "an error is not a completion"
    with Rig(tmp_path) as rig:
        photos.key_values = Stored(rig)
        assert completed(f"hybrisfs kv {command} photos {CONTAINER[:1]}") == [f"plain,{CONTAINER}"]
        assert completed(f"hybrisfs kv {command} photos x") == []


@pytest.mark.parametrize("command", ["get", "put", "append", "replace", "delete"])
def test_keys(locked: None, photos: FakeVolume, command: str, tmp_path: Path) -> None:
    place = f"hybrisfs kv {command} photos"
    assert completed(f"{place} {CONTAINER[:1]}") == [], "an error is no completion"
    with Rig(tmp_path) as rig:
        photos.key_values = Stored(rig)
        assert completed(f"{place} {CONTAINER[:1]}") == [f"plain,{CONTAINER}/"], "there is none"
        for key in ("one", "one/two", "other", "-x*"):
            rig.store.put(CONTAINER, key, b"")
        assert completed(f"{place} {CONTAINER[:1]}") == [
            f"plain,{CONTAINER}/{key}" for key in ("-x*", "one", "one/two", "other") if "*" not in key
        ]
        assert completed(f"{place} {CONTAINER}/one") == [
            f"plain,{CONTAINER}/one",
            f"plain,{CONTAINER}/one/two",
        ]
        assert completed(f"{place} {CONTAINER}/x") == completed(f"{place} x") == []
        photos.key_values = Stored(rig, "clouds:powerstore/0,1,2,3/1,1")
        assert completed(f"{place} {CONTAINER}/one") == [], "a list on the clouds costs requests"


def test_of_many_keys_none_are_completed(locked: None, photos: FakeVolume, tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        photos.key_values = Stored(rig)
        for number in range(201):
            rig.store.put(CONTAINER, f"{number:04}", b"")
        assert completed(f"hybrisfs kv get photos {CONTAINER}/0") == []
        assert completed(f"hybrisfs kv get photos {CONTAINER}/02") == [f"plain,{CONTAINER}/0200"]


def test_no_daemon_is_started(home: Home, listener: socket.socket) -> None:
    """Where systemd listens on the socket, to dial is to start one."""
    assert completed("hybrisfs cloud test am") == []
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_nobody_waits_for_a_busy_daemon(locked: None, listener: socket.socket) -> None:
    assert completed("hybrisfs cloud test am") == [], "it does not greet"
    listener.accept()[0].close()


def test_nobody_waits_in_a_queue(locked: None, listener: socket.socket, home: Home) -> None:
    with contextlib.ExitStack() as waiting:
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting.enter_context(connect_socket(home.socket, 0))
        assert completed("hybrisfs cloud test am") == []


def test_nobody_waits_for_a_daemon_that_greets_and_has_no_time(
    locked: None, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = []
    dial = socket.socket.connect

    def greeted(self: socket.socket, address: bytes) -> None:
        dial(self, address)
        guests.append(listener.accept()[0])
        guests[-1].sendall(json.dumps({"hello": {"protocol": PROTOCOL, "version": VERSION}}).encode() + b"\n")

    monkeypatch.setattr(socket.socket, "connect", greeted)
    assert completed("hybrisfs device remove de") == []
    assert b'"device list"' in guests[0].recv(1000)
    guests[0].close()
