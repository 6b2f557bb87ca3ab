"""The command line against a daemon with made-up volumes, over a real socket."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from cli.main import program
from hybrisfs.daemon.control import ControlServer
from hybrisfs.daemon.service import Daemon
from hybrisfs.environment import SYSTEM
from hybrisfs.home import Home
from tests.daemon.conftest import home
from tests.daemon.fake import FakeVolume, FakeVolumes

__all__ = ["Run", "home", "moment", "photos", "run", "served", "typed", "volumes"]

Run = Callable[..., Result]


@pytest.fixture
def volumes() -> FakeVolumes:
    return FakeVolumes("photos")


@pytest.fixture
def served(home: Home, volumes: FakeVolumes) -> Iterator[Daemon]:
    daemon = Daemon(home, volumes, SYSTEM)
    server = ControlServer(home.socket, daemon.handle)
    server.start()
    yield daemon
    server.stop()
    daemon.stop()


@pytest.fixture
def run() -> Run:
    """Run a command line; nothing but its output and exit code may come out of it."""

    def invoke(*words: str) -> Result:
        result = CliRunner().invoke(program, list(words))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert "Traceback" not in result.output
        return result

    return invoke


@pytest.fixture
def photos(served: Daemon, volumes: FakeVolumes) -> FakeVolume:
    """The volume of the daemon that runs."""
    served.start()
    return volumes.opened["photos"]


class _Keyboard(io.BytesIO):
    """Standard input that says that a person sits there."""

    def isatty(self) -> bool:
        return True


def typed(text: str, *words: str) -> Result:
    """Run a command line at a terminal, where the person types *text*."""
    done = CliRunner().invoke(program, list(words), input=_Keyboard(text.encode()))
    assert "Traceback" not in done.output
    return done


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
