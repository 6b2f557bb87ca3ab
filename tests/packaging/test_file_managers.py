"""The extension for file managers. The managers are fakes: they need a desktop, which there is not here."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from unittest import mock

import pytest

from tests.system.device import REPOSITORY

_SOURCE = REPOSITORY / "packaging" / "desktop" / "hybrisfs_files.py"


class FakeLocation:
    """A file as GIO sees it. What is asked of it is answered when `answer` is called."""

    asked: ClassVar[list[Callable[[], None]]] = []
    invalid: ClassVar[list[FakeFile]] = []
    states: ClassVar[dict[str, str]] = {}

    def __init__(self, path: str) -> None:
        self.path = path

    def get_path(self) -> str:
        return self.path

    def query_info_async(
        self, what: str, _flags: int, _priority: int, _cancel: None, done: Callable[..., None], *more: object
    ) -> None:
        assert what == "xattr::hybrisfs.state"
        self.asked.append(lambda: done(self, self.path, *more))

    def query_info_finish(self, result: str) -> Any:
        return mock.Mock(get_attribute_as_string=lambda _: self.states.get(result))

    @classmethod
    def forget(cls) -> None:
        """Begin anew."""
        cls.asked.clear()
        cls.invalid.clear()
        cls.states.clear()

    @classmethod
    def answer(cls) -> int:
        """Answer everything, also what is asked because of an answer; returns how much there was.

        Who is told to ask again does so when nothing else is to be done.
        """
        count = 0
        while cls.asked or cls.invalid:
            while cls.asked:
                count += 1
                assert count < 10_000, "there is no end to it"
                cls.asked.pop(0)()
            if cls.invalid:
                cls.invalid.pop(0).ask_again()
        return count


class FakeFile:
    """What a file manager hands to its extensions. When it is told to, it asks again for its emblem."""

    def __init__(self, path: Path | str, scheme: str = "file", folder: bool = False) -> None:
        self.path, self.scheme, self.folder = str(path), scheme, folder
        self.emblems: list[str] = []
        self.provider: Any = None
        self.gone = False

    def weak_ref(self) -> Callable[[], FakeFile | None]:
        return lambda: None if self.gone else self

    def is_gone(self) -> bool:
        return False

    def show(self, provider: Any) -> None:
        """Come into view."""
        self.provider = provider
        provider.update_file_info(self)

    def invalidate_extension_info(self) -> None:
        FakeLocation.invalid.append(self)

    def ask_again(self) -> None:
        self.emblems.clear()
        self.provider.update_file_info(self)

    def get_uri_scheme(self) -> str:
        return self.scheme

    def get_location(self) -> FakeLocation:
        return FakeLocation(self.path)

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
            "GLib": mock.Mock(Error=OSError, get_monotonic_time=lambda: 0),
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
    FakeLocation.forget()
    mounts = f"36 35 0:42 / {tmp_path}/täglich\\040neu rw - fuse.hybrisfs home rw\n"
    monkeypatch.setitem(module.__dict__, "open", mock.mock_open(read_data=mounts))
    return module


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the volume is mounted."""
    return tmp_path / "täglich neu"


@pytest.mark.parametrize(
    ("state", "emblem"),
    [
        ("durable", "emblem-hybrisfs-safe"),
        ("uploading", "emblem-hybrisfs-uploading"),
        ("local", "emblem-hybrisfs-uploading"),
        ("cloud-only", "emblem-hybrisfs-cloud-only"),
        ("conflict", "emblem-hybrisfs-conflict"),
        ("ignored", "emblem-hybrisfs-ignored"),
    ],
)
def test_each_state_has_an_emblem(extension: Any, state: str, emblem: str, place: Path) -> None:
    file = FakeFile(place / "file")
    FakeLocation.states[file.path] = state
    file.show(extension.HybrisFS())
    FakeLocation.answer()
    assert file.emblems == [emblem]
    assert (_SOURCE.parent / f"{emblem}.svg").exists()


def test_files_elsewhere_are_left_alone(extension: Any, tmp_path: Path) -> None:
    provider = extension.HybrisFS()
    plain, remote = FakeFile(tmp_path / "täglich neu!"), FakeFile("/x", scheme="sftp")
    plain.show(provider)
    remote.show(provider)
    assert FakeLocation.asked == []
    assert provider.get_file_items([plain]) == provider.get_file_items([remote]) == []
    assert provider.get_background_items(object(), plain) == []
    extension.GLib.timeout_add_seconds.assert_not_called()


def test_a_daemon_that_answers_nothing_holds_nobody_up(extension: Any, place: Path) -> None:
    provider = extension.HybrisFS()
    with (
        mock.patch("os.getxattr", side_effect=AssertionError),
        mock.patch("os.stat", side_effect=AssertionError),
    ):
        for number in range(30):
            FakeFile(place / str(number)).show(provider)
        assert len(FakeLocation.asked) == 2, "of GIO's few threads it takes no more"
        [item] = provider.get_file_items([FakeFile(place / "7")])
    assert [entry.label for entry in item.menu.items][:1] == ["Pin: always keep on this machine"]


def test_a_file_whose_state_has_changed_is_given_another_emblem(extension: Any, place: Path) -> None:
    moving, still = FakeFile(place / "moving"), FakeFile(place / "still")
    states = FakeLocation.states
    states[moving.path], states[still.path] = "uploading", "cloud-only"
    provider = extension.HybrisFS()
    moving.show(provider)
    still.show(provider)
    FakeLocation.answer()
    [((seconds, look), _)] = extension.GLib.timeout_add_seconds.call_args_list
    assert seconds >= 1
    states[moving.path] = states[still.path] = "durable"
    assert look()
    FakeLocation.answer()
    assert moving.emblems == still.emblems == ["emblem-hybrisfs-safe"]
    assert look()
    assert FakeLocation.answer() == 2, "who is told what it knows does not ask again"
    moving.gone = still.gone = True
    look()
    assert not look(), "it looks at nothing when nothing is shown"
    moving.gone = False
    moving.show(provider)
    FakeLocation.answer()
    assert extension.GLib.timeout_add_seconds.call_count == 2


def test_a_file_that_lost_its_state_or_its_name_is_forgotten(extension: Any, place: Path) -> None:
    provider, one, other = extension.HybrisFS(), FakeFile(place / "one"), FakeFile(place / "other")
    FakeLocation.states.update({one.path: "durable", other.path: "durable"})
    one.show(provider)
    other.show(provider)
    FakeLocation.answer()
    [((_, look), _)] = extension.GLib.timeout_add_seconds.call_args_list
    del FakeLocation.states[one.path]
    other.path = str(place / "renamed")
    FakeLocation.states[other.path] = "durable"
    assert look()
    FakeLocation.answer()
    assert one.emblems == []
    assert not look()


def test_few_files_are_looked_at_each_time_and_all_in_turn(extension: Any, place: Path) -> None:
    provider = extension.HybrisFS()
    files = [FakeFile(place / str(number)) for number in range(30)]
    for file in files:
        FakeLocation.states[file.path] = "durable"
        file.show(provider)
    FakeLocation.answer()
    [((_, look), _)] = extension.GLib.timeout_add_seconds.call_args_list
    for file in files:
        FakeLocation.states[file.path] = "cloud-only"
    look()
    FakeLocation.answer()
    assert [file.emblems for file in files].count(["emblem-hybrisfs-cloud-only"]) == 20
    look()
    FakeLocation.answer()
    assert {name for file in files for name in file.emblems} == {"emblem-hybrisfs-cloud-only"}


def test_more_files_than_can_be_kept_in_mind_have_emblems_and_come_to_rest(
    extension: Any, place: Path
) -> None:
    provider = extension.HybrisFS()
    files = [FakeFile(place / str(number)) for number in range(2050)]
    for file in files:
        FakeLocation.states[file.path] = "durable"
        file.show(provider)
    assert FakeLocation.answer() == len(files)
    assert all(file.emblems == ["emblem-hybrisfs-safe"] for file in files)


def test_the_menu_runs_commands_on_what_is_chosen(extension: Any, place: Path) -> None:
    provider, files = extension.HybrisFS(), [FakeFile(place / "--a"), FakeFile(place / "b")]
    for file in files:
        FakeLocation.states[file.path] = "durable"
        file.show(provider)
    FakeLocation.answer()
    [item] = provider.get_file_items(object(), files)
    assert provider.get_file_items(files)
    [single] = provider.get_file_items(files[1:])
    [folder] = provider.get_background_items(FakeFile(place, folder=True))
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
    assert "Versions ..." not in [entry.label for entry in folder.menu.items]


@pytest.mark.parametrize(
    ("well", "told"), [(True, "a: freed 0 bytes.\nb\nc\nd\ne"), (False, "hybrisfs: no room")]
)
def test_what_a_command_says_is_shown(extension: Any, well: bool, told: str) -> None:
    extension.HybrisFS()._run(object(), ("hybrisfs", "evict", "--", "x"))
    process = extension.Gio.Subprocess.new.return_value
    process.communicate_utf8_finish.return_value = (
        True,
        "a: freed 0 bytes.\nb\nc\nd\ne\nf",
        "hybrisfs: no room",
    )
    process.get_successful.return_value = well
    [(_, _, ended)] = [call.args for call in process.communicate_utf8_async.call_args_list]
    ended(process, object())
    extension.GLib.markup_escape_text.assert_called_once_with(told)
    [(_, _, on_the_bus, words)] = [call.args for call in extension.Gio.bus_get.call_args_list]
    on_the_bus(object(), object(), words)
    extension.Gio.bus_get_finish.return_value.call.assert_called_once()


def test_the_link_to_the_dashboard_is_not_shown(extension: Any) -> None:
    provider, flags = extension.HybrisFS(), extension.Gio.SubprocessFlags
    flags.STDOUT_SILENCE, flags.STDOUT_PIPE, flags.STDERR_PIPE = 1, 2, 4
    provider._run(object(), ("hybrisfs", "ui", "--", "x"))
    provider._run(object(), ("hybrisfs", "pin", "--", "x"))
    assert [call.args[1] for call in extension.Gio.Subprocess.new.call_args_list] == [5, 6]
    process = extension.Gio.Subprocess.new.return_value
    process.communicate_utf8_finish.return_value = (True, None, "")
    [ended, _] = [call.args[2] for call in process.communicate_utf8_async.call_args_list]
    ended(process, object())
    extension.Gio.bus_get.assert_not_called()
