"""The extension for file managers. The managers are fakes: they need a desktop, which there is not here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from tests.system.device import REPOSITORY

_SOURCE = REPOSITORY / "packaging" / "desktop" / "hybrisfs_files.py"


class FakeFile:
    """What a file manager hands to its extensions."""

    def __init__(self, path: Path | str, scheme: str = "file", folder: bool = False) -> None:
        self.path, self.scheme, self.folder = str(path), scheme, folder
        self.emblems: list[str] = []

    def get_uri_scheme(self) -> str:
        return self.scheme

    def get_location(self) -> Any:
        return mock.Mock(get_path=lambda: self.path)

    def is_directory(self) -> bool:
        return self.folder

    def add_emblem(self, name: str) -> None:
        self.emblems.append(name)


class FakeItem:
    """An entry of a menu."""

    def __init__(self, name: str, label: str, tip: str) -> None:
        self.label, self.menu = label, FakeMenu()
        self.commands: list[Any] = []

    def set_submenu(self, menu: FakeMenu) -> None:
        self.menu = menu

    def connect(self, signal: str, call: Any, command: tuple[str, ...]) -> None:
        assert signal == "activate"
        self.commands.append(command)


class FakeMenu:
    """A menu."""

    def __init__(self) -> None:
        self.items: list[FakeItem] = []

    def append_item(self, item: FakeItem) -> None:
        self.items.append(item)


@pytest.fixture(params=["nautilus", "nemo", "caja"])
def extension(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The extension as that file manager loads it."""
    manager = mock.Mock(InfoProvider=type("Info", (), {}), MenuProvider=type("Menu", (), {}))
    manager.MenuItem, manager.Menu = FakeItem, FakeMenu
    repository = ModuleType("gi.repository")
    names = {"nautilus": "Nautilus", "nemo": "Nemo", "caja": "Caja"}
    repository.__dict__.update(
        {names[request.param]: manager, "GObject": mock.Mock(GObject=type("GObject", (), {}))}
    )
    gi = ModuleType("gi")
    gi.__dict__.update(repository=repository, require_version=lambda name, version: None)
    monkeypatch.setitem(sys.modules, "gi", gi)
    monkeypatch.setitem(sys.modules, "gi.repository", repository)
    folder = tmp_path / f"{request.param}-python" / "extensions"
    folder.mkdir(parents=True)
    specification = importlib.util.spec_from_file_location("fm", shutil.copy(_SOURCE, folder / "hybrisfs.py"))
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("state", "emblem"),
    [
        ("durable", "emblem-hybrisfs-safe"),
        ("uploading", "emblem-hybrisfs-uploading"),
        ("local", "emblem-hybrisfs-uploading"),
        ("cloud-only", "emblem-hybrisfs-cloud-only"),
        ("conflict", "emblem-hybrisfs-conflict"),
    ],
)
def test_each_state_has_an_emblem(extension: Any, state: str, emblem: str, tmp_path: Path) -> None:
    file = FakeFile(tmp_path / "file")
    with mock.patch.object(os, "getxattr", return_value=state.encode()):
        extension.HybrisFS().update_file_info(file)
    assert file.emblems == [emblem]
    assert (_SOURCE.parent / f"{emblem}.svg").exists()


def test_files_elsewhere_get_none(extension: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    plain, remote = FakeFile(tmp_path / "file"), FakeFile("/x", scheme="sftp")
    extension.HybrisFS().update_file_info(plain)
    extension.HybrisFS().update_file_info(remote)
    assert plain.emblems == remote.emblems == []
    assert extension.HybrisFS().get_file_items([plain]) == []
    assert extension.HybrisFS().get_file_items([remote]) == []


def test_the_menu_runs_commands_on_what_is_chosen(extension: Any, tmp_path: Path) -> None:
    place = tmp_path / "täglich neu"
    place.mkdir()
    line = f"36 35 0:42 / {str(place).replace(' ', chr(92) + '040')} rw - fuse.hybrisfs home rw\n"
    files = [FakeFile(place / "--a"), FakeFile(place / "b")]
    with (
        mock.patch.object(os.path, "ismount", lambda path: path == str(place)),
        mock.patch("builtins.open", mock.mock_open(read_data=line)),
    ):
        [item] = extension.HybrisFS().get_file_items(object(), files)
        assert extension.HybrisFS().get_file_items(files)
    commands = [command for entry in item.menu.items for command in entry.commands]
    chosen = (str(place / "--a"), str(place / "b"))
    assert commands == [
        ("hybrisfs", "pin", "--", *chosen),
        ("hybrisfs", "unpin", "--", *chosen),
        ("hybrisfs", "evict", "--", *chosen),
        ("hybrisfs", "ui"),
    ]
