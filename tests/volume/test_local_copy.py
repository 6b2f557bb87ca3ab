"""What a machine has of a volume goes, or gets another name, wherever the program is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from backends.credentials import CredentialStore
from hybrisfs.admit import local_copy
from hybrisfs.admit.create import create_volume
from hybrisfs.admit.local_copy import (
    Deletion,
    finish_copies,
    forget_copy,
    is_half_forgotten,
    rename_copy,
    require_kept,
)
from hybrisfs.environment import SYSTEM, make_directory
from hybrisfs.errors import DamagedError, HybrisError, UsageError
from hybrisfs.home import Home
from hybrisfs.mirror.agreed import AgreedTable, Settings
from hybrisfs.mirror.ignore import write_marker
from hybrisfs.settings.config import list_volumes

NAME: Final = "vol"
OTHER: Final = "other"


class _KilledError(BaseException):
    """The program ends here."""


@pytest.fixture
def made(home: Home, tmp_path: Path) -> Home:
    """Two volumes."""
    for name in (NAME, OTHER):
        create_volume(home, name, [(tmp_path / name).as_uri()], 0, 1)
        for path in home.files_of_servers(name):
            make_directory(path.parent, SYSTEM)
            path.write_text(name)
    return home


def folders(home: Home) -> set[str]:
    return {path.name for top in (home.config, home.state) for path in (top / "volumes").iterdir()}


def names(home: Home) -> list[str]:
    return [one.name for one in list_volumes(home)]


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """The program is killed at that call that changes the disk; nothing happens when there are fewer."""
    left = step

    def dying(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise _KilledError
            return real(*args, **kwargs)

        patch.setattr(owner, name, call)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "replace", "unlink", "rmdir"):
            dying(Path, name)
        dying(shutil, "rmtree")
        dying(local_copy, "replace_file")
        yield


STEPS: Final = range(13)


@pytest.mark.parametrize("step", STEPS)
def test_a_volume_that_was_being_forgotten_goes(made: Home, step: int) -> None:
    (made.volume_config(NAME) / "volume.json.new").touch()
    try:
        with killed_at(step):
            forget_copy(made, NAME)
    except _KilledError:
        if step == 0:
            assert NAME in names(made) and not is_half_forgotten(made, NAME), "it still works"
            require_kept(made, NAME)
        elif NAME in names(made):
            with pytest.raises(HybrisError, match="being given up"):
                require_kept(made, NAME)
            if step % 2:
                forget_copy(made, NAME)
    finish_copies(made, lambda old, new: None)
    if step:
        assert folders(made) == {OTHER} and names(made) == [OTHER]
        for path in made.files_of_servers(OTHER):
            assert [one.stem for one in path.parent.iterdir()] == [OTHER]
        create_volume(made, NAME, [(made.state.parent / "anew").as_uri()], 0, 1)


def test_killing_reaches_all_steps(made: Home) -> None:
    with pytest.raises(_KilledError), killed_at(3):
        forget_copy(made, NAME)
    with killed_at(STEPS[-1]):
        forget_copy(made, OTHER)


@pytest.mark.parametrize("step", range(8))
def test_a_volume_that_was_being_renamed_has_one_name(made: Home, step: int) -> None:
    keys = (made.volume_state(NAME) / "keys.json").read_bytes()
    told: list[tuple[str, str]] = []
    done = False
    try:
        with killed_at(step):
            rename_copy(made, NAME, "new", lambda *both: told.append(both))
            done = True
    except _KilledError:
        finish_copies(made, lambda *both: told.append(both))
    begun = step > 1  # the first two make the file that says so
    name = "new" if begun else NAME
    assert names(made) == sorted([name, OTHER]) and folders(made) == {name, OTHER}
    assert (made.volume_state(name) / "keys.json").read_bytes() == keys
    assert not (made.volume_config(name) / "new-name").exists()
    assert [path.read_text() for path in made.files_of_servers(name)] == [NAME, NAME]
    assert done == (step == 7) and all(new == "new" for _, new in told) and bool(told) == begun


@pytest.mark.parametrize("name", ["a/b", "", "-x", OTHER, NAME])
def test_a_name_that_is_taken_or_illegal_is_refused(made: Home, name: str) -> None:
    with pytest.raises(UsageError):
        rename_copy(made, NAME, name, lambda old, new: None)
    assert names(made) == [OTHER, NAME]


def test_secrets_of_clouds_that_others_use_stay(home: Home, tmp_path: Path) -> None:
    for name in (NAME, OTHER):
        create_volume(home, name, [(tmp_path / "clouds" / name).as_uri()], 0, 1, make=True)
    urls = {name: (tmp_path / "clouds" / name).as_uri() for name in (NAME, OTHER, "unused")}
    shared = (tmp_path / "clouds").as_uri()
    store = CredentialStore(home.credentials, keyring=False)
    store.add_all({url: {"password": "x"} for url in (*urls.values(), shared)})
    forget_copy(home, NAME)
    kept = json.loads(home.credentials.read_bytes())["clouds"].keys()
    assert kept == {urls[OTHER], urls["unused"], shared}
    forget_copy(home, OTHER)
    assert json.loads(home.credentials.read_bytes())["clouds"].keys() == {urls["unused"]}


def test_a_folder_that_was_mirrored_is_marked_no_longer(made: Home, tmp_path: Path) -> None:
    folder = tmp_path / "mirrored"
    folder.mkdir()
    (folder / "file").write_text("stays")
    write_marker(folder, "00" * 16, SYSTEM)
    make_directory(made.volume_state(NAME) / "mirrors", SYSTEM)
    settings = Settings("00" * 16, folder, "", bytes(16))
    AgreedTable.create(made.volume_state(NAME) / "mirrors" / f"{settings.id}.db", settings).close()
    forget_copy(made, NAME)
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_a_volume_that_is_being_deleted_is_not_opened(made: Home) -> None:
    deletion = Deletion(made, NAME)
    deletion.begin()
    with pytest.raises(HybrisError, match="being deleted"):
        require_kept(made, NAME)
    deletion.note(3, emptied=False)
    again = Deletion(made, NAME)
    assert again.has_begun(3) and not again.is_emptied(3) and not again.has_begun(2)


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"version": 2, "clouds": {}}', '{"version": 1, "clouds": {"a": "begun"}}', "[" * 10_000],
)
def test_a_damaged_record_of_a_deletion_is_told(made: Home, text: str) -> None:
    (made.volume_state(NAME) / "deleting").write_text(text)
    with pytest.raises(DamagedError, match="cannot read"):
        Deletion(made, NAME)


def test_there_must_be_something_to_forget(made: Home) -> None:
    with pytest.raises(HybrisError, match="there is nothing"):
        forget_copy(made, "none")
