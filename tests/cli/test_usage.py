"""The volume is named in the same way everywhere, and a command that is typed wrong says what is right."""

from __future__ import annotations

import click
import pytest

from cli.main import program
from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import Run
from tests.cli.test_program import every_command
from tests.daemon.conftest import home
from tests.daemon.fake import FakeVolume

__all__ = ["home", "known"]


@pytest.fixture
def known(home: Home) -> None:
    """A volume folder on the disk: commands read its name there, without the daemon."""
    folder = home.volume_config("photos")
    folder.mkdir(parents=True)
    (folder / "volume.json").touch()


# Commands that have no volume to choose: a path tells it, or they are about all, or about none.
BY_PATH = {
    *(("copies", one) for one in ("list", "remove", "set")),
    *(("label", one) for one in ("add", "list", "remove")),
    *(("mirror", one) for one in ("accept", "remove", "undo")),
    *(("versions", one) for one in ("diff", "id", "verify")),
    ("evict",),
    ("pin",),
    ("share", "add"),
    ("unpin",),
}
WITHOUT = {
    *(("relay", one) for one in ("add", "code", "list", "remove", "serve")),
    *(("service", one) for one in ("install", "remove", "status")),
    ("cloud", "login"),
    ("daemon",),
    ("device", "join"),
    ("doctor",),
    ("metrics",),
    ("quickstart",),
    ("recover",),
    ("tray",),
    ("volume", "list"),
}


def found(words: tuple[str, ...]) -> click.Command:
    one: click.Command = program
    for word in words:
        assert isinstance(one, click.Group)
        inner = one.get_command(click.Context(one), word)
        assert inner is not None
        one = inner
    return one


@pytest.mark.parametrize("command", every_command(program), ids=" ".join)
def test_every_command_takes_the_volume_as_an_option_or_says_why_not(
    run: Run, command: tuple[str, ...]
) -> None:
    if command in BY_PATH:
        said = run(*command, "--volume", "photos").stderr
        assert "says which volume it is." in said
    elif command in WITHOUT:
        assert "This command does not choose among volumes." in run(*command, "--volume", "photos").stderr
    else:
        assert any("--volume" in one.opts for one in found(command).params)


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("sync",),
        ("cloud", "list"),
        ("conflicts", "list"),
        ("deletions", "list"),
        ("device", "list"),
        ("ignore", "list"),
        ("share", "list"),
        ("recovery", "show"),
        ("kv", "containers"),
        ("volume", "set"),
        ("pending",),
        ("limit",),
    ],
    ids=" ".join,
)
def test_it_is_the_same_as_an_option_and_as_an_argument(
    photos: FakeVolume, run: Run, words: tuple[str, ...]
) -> None:
    as_argument, as_option = run(*words, "photos"), run(*words, "--volume", "photos")
    assert as_argument.output == as_option.output == run(*words, "--volume=photos").output
    assert as_argument.exit_code == as_option.exit_code != 2
    for wrong in (("fotos",), ("--volume", "fotos")):
        done = run(*words, *wrong)
        assert done.exit_code == 4
        assert "there is no volume 'fotos'\nThere are: photos." in done.stderr


def test_the_option_may_stand_anywhere(photos: FakeVolume, run: Run) -> None:
    assert run("volume", "rename", "pictures", "--volume=photos").stdout == "photos is called pictures now.\n"


@pytest.mark.usefixtures("photos", "known")
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("cloud", "drain", "photos", "cloud-1"), "Name the volume as --volume photos."),
        (("device", "remove", "laptop", "photos"), "Name the volume as --volume photos."),
        (("sync", "photos", "--volume", "photos"), "The volume is named twice."),
        (("kv", "containers"), "There are: photos."),
        (("kv", "get", "box/key"), "The volume comes first, and box/key is not one. There are: photos."),
        (("pin", "--volume", "photos", "x"), "PATH says which volume it is."),
        (("doctor", "--volume", "photos"), "This command does not choose among volumes."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_typed_wrong_is_explained(run: Run, words: tuple[str, ...], advice: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert done.stderr.endswith(f" {advice}\n"), done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("copies", "set", "x", "99"), "99 is not a whole number from 1 to 32."),
        (("copies", "set", "x"), "Missing argument 'NUMBER'."),
        (("copies", "set", "x", "two"), "'two' is not a whole number from 1 to 32."),
        (("scrub", "--sample", "101"), "101.0 is not a number above 0 up to 100."),
        (
            ("volume", "create", "x", "--cloud", "file:///x", "-f", "-1"),
            "-1 is not a whole number from 0 upwards.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_number_is_told_in_words(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_volume_is_missing_where_there_is_none(served: Daemon, home: Home, run: Run) -> None:
    done = run("umount")
    assert done.exit_code == 2
    assert "Missing argument" in done.stderr
