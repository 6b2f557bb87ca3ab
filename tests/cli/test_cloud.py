"""`hybrisfs cloud`: what it prints, and its exit codes."""

from __future__ import annotations

import json

import pytest

from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume, FakeVolumes


@pytest.fixture
def photos(served: Daemon, volumes: FakeVolumes) -> FakeVolume:
    served.start()
    return volumes.opened["photos"]


def test_list_and_test(photos: FakeVolume, run: Run) -> None:
    assert run("cloud", "list", "photos").stdout == (
        "NAME   USE     STATE  OBJECTS  DATA    URL\namber  in use  ok     1,200    3.0 MB  file:///amber\n"
    )
    photos.clouds.trouble = "no cloud can\ntake it"
    assert "amber: $'no cloud can\\ntake it'\n" in run("cloud", "list").stdout
    assert json.loads(run("cloud", "list", "--json").stdout)["clouds"][0]["use"] == "draining"
    assert run("cloud", "test", "amber").stdout == "amber works:\n  put  12.3 ms\n"


def test_adding_and_replacing(photos: FakeVolume, run: Run) -> None:
    assert run("cloud", "add", "file:///x", "--name", "disk").stdout == "photos uses the cloud disk now.\n"
    done = run("cloud", "replace", "amber", "file:///y", "--wait")
    assert done.exit_code == 0
    assert done.stdout == ("photos uses the cloud new now.\nphotos does not need the cloud amber any more.\n")
    assert photos.clouds.asked == [("add", "file:///x", "disk"), ("replace", "amber", "file:///y")]


def test_draining_goes_on_in_the_background(photos: FakeVolume, run: Run) -> None:
    photos.clouds.released = False
    done = run("cloud", "drain", "amber")
    assert (done.exit_code, done.stdout) == (
        0,
        "amber is being emptied in the background: hybrisfs status shows how far it is.\n",
    )
    assert run("cloud", "drain", "amber", "--wait", "--timeout", "0").exit_code == 3
    photos.clouds.trouble = "amber is down"
    done = run("cloud", "drain", "amber", "--wait", "--timeout", "0", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout) == {
        "name": "photos",
        "cloud": "amber",
        "done": False,
        "trouble": "amber is down",
    }


def test_a_cloud_that_is_not_there(photos: FakeVolume, run: Run) -> None:
    done = run("cloud", "remove", "birch")
    assert done.exit_code == 2
    assert "no cloud 'birch'" in done.stderr
