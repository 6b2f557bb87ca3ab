"""The extension for file managers. The managers are fakes: they need a desktop, which there is not here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
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
        self.asked_again = 0
        self.gone = False

    def weak_ref(self) -> Callable[[], FakeFile | None]:
        return lambda: None if self.gone else self

    def is_gone(self) -> bool:
        return False

    def invalidate_extension_info(self) -> None:
        self.asked_again += 1

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
        self.sensitive = True

    def set_property(self, name: str, value: bool) -> None:
        assert name == "sensitive"
        self.sensitive = value

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
        {
            names[request.param]: manager,
            "GObject": mock.Mock(GObject=type("GObject", (), {})),
            "Gio": mock.MagicMock(),
            "GLib": mock.Mock(Error=OSError),
        }
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
    assert extension.HybrisFS().get_background_items(object(), plain) == []
    extension.GLib.timeout_add_seconds.assert_not_called()
    assert extension.HybrisFS().get_file_items([remote]) == []


def test_a_file_whose_state_has_changed_is_given_another_emblem(extension: Any, tmp_path: Path) -> None:
    states = {str(tmp_path / "moving"): b"uploading", str(tmp_path / "still"): b"cloud-only"}
    moving, still = map(FakeFile, states)
    with mock.patch.object(os, "getxattr", side_effect=lambda path, _: states[path]):
        provider = extension.HybrisFS()
        provider.update_file_info(moving)
        provider.update_file_info(still)
        [((seconds, look), _)] = extension.GLib.timeout_add_seconds.call_args_list
        assert seconds >= 1
        assert look()
        assert (moving.asked_again, still.asked_again) == (0, 0)
        states[moving.path], states[still.path] = b"durable", b"durable"
        assert look()
        assert (moving.asked_again, still.asked_again) == (1, 1)
        provider.update_file_info(moving)
        assert moving.emblems == ["emblem-hybrisfs-uploading", "emblem-hybrisfs-safe"]
        moving.gone = still.gone = True
        assert not look(), "it looks at nothing when nothing is shown"
        moving.gone = False
        provider.update_file_info(moving)
        assert extension.GLib.timeout_add_seconds.call_count == 2


def test_few_files_are_looked_at_each_time_and_all_in_turn(extension: Any, tmp_path: Path) -> None:
    provider = extension.HybrisFS()
    with mock.patch.object(os, "getxattr", return_value=b"durable") as asked:
        for number in range(30):
            provider.update_file_info(FakeFile(tmp_path / str(number)))
        [((_, look), _)] = extension.GLib.timeout_add_seconds.call_args_list
        asked.reset_mock()
        look()
        assert asked.call_count == 20
        look()
    assert {call.args[0] for call in asked.call_args_list} == {str(tmp_path / str(n)) for n in range(30)}


def test_the_menu_runs_commands_on_what_is_chosen(extension: Any, tmp_path: Path) -> None:
    place = tmp_path / "täglich neu"
    place.mkdir()
    line = f"36 35 0:42 / {str(place).replace(' ', chr(92) + '040')} rw - fuse.hybrisfs home rw\n"
    files = [FakeFile(place / "--a"), FakeFile(place / "b")]
    with (
        mock.patch.object(os.path, "ismount", lambda path: path == str(place)),
        mock.patch.object(os, "getxattr", return_value=b"durable"),
        mock.patch("builtins.open", mock.mock_open(read_data=line)),
    ):
        [item] = extension.HybrisFS().get_file_items(object(), files)
        assert extension.HybrisFS().get_file_items(files)
        [single] = extension.HybrisFS().get_file_items(files[1:])
        assert extension.HybrisFS().get_background_items(FakeFile(place, folder=True))
    commands = [command for entry in item.menu.items for command in entry.commands]
    one, other = (str(file.path) for file in files)
    assert commands == [
        ("hybrisfs", "pin", "--", one, other),
        ("hybrisfs", "unpin", "--", one, other),
        ("hybrisfs", "evict", "--", one, other),
        ("hybrisfs", "ui", "--section", "conflicts", "--", one),
        ("hybrisfs", "ui", "--section", "overview", "--", one),
    ]
    assert single.menu.items[0].label == "On the clouds and on this machine"
    assert [entry.sensitive for entry in single.menu.items] == [False, *[True] * 6]
    assert ("hybrisfs", "ui", "--", other) in [c for entry in single.menu.items for c in entry.commands]


def test_what_a_command_complains_of_is_shown(extension: Any) -> None:
    extension.HybrisFS()._run(object(), ("hybrisfs", "pin", "--", "x"))
    process = extension.Gio.Subprocess.new.return_value
    process.communicate_utf8_finish.return_value = (True, None, "no room")
    [(_, _, ended)] = [call.args for call in process.communicate_utf8_async.call_args_list]
    notify = extension.Gio.bus_get_sync.return_value.call
    process.get_successful.return_value = True
    ended(process, object())
    notify.assert_not_called()
    process.get_successful.return_value = False
    ended(process, object())
    extension.GLib.markup_escape_text.assert_called_once_with("no room")
    notify.assert_called_once()
