"""The commands of the pages run as they stand there, one after the other, in the home of a new user."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.backends.conftest import azure_server, s3_server, sftp_server, webdav_server
from tests.backends.servers import Server
from tests.docs.machines import Machines, free_port
from tests.docs.page_settings import GO_ON, OTHERS, SETTINGS, Setting
from tests.docs.pages import commands, may_be_a_name
from tests.kv.etcd_servers import EtcdCluster, etcd_cluster
from tests.system.device import REPOSITORY
from tests.system.shell import tool

__all__ = ["azure_server", "s3_server", "sftp_server", "webdav_server"]

_DOCS: Final = REPOSITORY / "docs"
_MADE: Final = ("docs/formats.md", "docs/reference.md")
"""Pages that are made of the code."""
_FOUND: Final = (REPOSITORY / "README.md", *sorted(_DOCS.glob("*.md")), *sorted(_DOCS.glob("internals/*.md")))
_PAGES: Final = {page.relative_to(REPOSITORY).as_posix(): page for page in _FOUND}
_TURNS: Final = {
    **{name: [page] for name, page in _PAGES.items() if name in SETTINGS},
    "others": [page for name, page in _PAGES.items() if name not in (*SETTINGS, *_MADE)],
}
"""Pages that are run in one home, one after the other."""
_WRONG_USAGE: Final = 2
_DOCTOR: Final = "hybrisfs doctor"
_FAULTS: Final = 1
"""That it found some: also the mounts of daemons that other tests have just killed."""


def _runs(command: str, of: Setting) -> bool:
    return not command.startswith((*OTHERS, *of.elsewhere))


@pytest.fixture
def etcd_server(tmp_path: Path) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path) as cluster:
        yield cluster


def _variables(name: str, server: Server | EtcdCluster) -> dict[str, str]:
    """What scripts know of a server."""
    if isinstance(server, EtcdCluster):
        return {f"{name}_URL": server.url}
    secrets = json.dumps(dict(server.secrets))
    return {name: str(server.port), f"{name}_URL": server.url(), f"{name}_SECRETS": secrets}


class _Reader:
    """Somebody who types what stands on a page."""

    def __init__(self, machines: Machines, setting: Setting) -> None:
        self._machines = machines
        self._setting = setting
        self.failed: list[str] = []

    def type(self, script: str, *also: int) -> None:
        """*also*: other exit codes than 0 that pass."""
        ended = self._machines.run(script)
        if ended.code not in (0, *also):
            self.failed.append(f"$ {script}\n{ended.printed}exit code {ended.code}")

    def give(self, command: str, *, is_name: bool) -> None:
        for beginning, script in self._setting.before.items():
            if command.startswith(beginning):
                self.type(script)
        given, _ = self._setting.translated(command)
        if command.startswith(self._setting.there):
            self.type(f"there {shlex.quote(given)}")
            if command.startswith("hybrisfs device join"):
                self._machines.wait_for("hybrisfs device invite")
        elif ready := next((ready for one, ready in GO_ON.items() if re.match(one, command)), None):
            try:
                self._machines.start(given, ready)
            except AssertionError as error:
                self.failed.append(str(error))
        else:
            self.type(
                given,
                *([_WRONG_USAGE] if is_name else []),
                *([_FAULTS] if command.startswith(_DOCTOR) else []),
            )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("turn", SETTINGS)
def test_the_commands_of_the_page_run(turn: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tool("getfattr")
    tool("jq")
    pages = _TURNS[turn]
    setting = SETTINGS[turn]
    variables = {"PORT": str(free_port())}
    for name in setting.servers:
        variables |= _variables(name.upper(), request.getfixturevalue(f"{name}_server"))
    shown = {one.text: one for page in pages for one in commands(page)}
    with Machines(tmp_path, variables) as machines:
        reader = _Reader(machines, setting)
        reader.type(setting.first)
        for one in shown.values():
            if _runs(one.text, setting):
                reader.give(one.text, is_name=may_be_a_name(one))
        machines.end()
    if reader.failed:
        pytest.fail("\n".join(reader.failed), pytrace=False)


@pytest.mark.parametrize("turn", SETTINGS)
def test_what_is_said_of_commands_is_said_of_those_on_the_page(turn: str) -> None:
    setting = SETTINGS[turn]
    shown = [one.text for page in _TURNS[turn] for one in commands(page)]
    for beginning in (*setting.before, *setting.there, *setting.elsewhere):
        assert any(text.startswith(beginning) for text in shown), beginning
    used = {word for text in shown if _runs(text, setting) for word in setting.translated(text)[1]}
    assert set(setting.instead) - used == set()
    for file in re.findall(r"tests/[a-z_/]+\.py", " ".join(setting.elsewhere.values())):
        assert (REPOSITORY / file).exists(), file
