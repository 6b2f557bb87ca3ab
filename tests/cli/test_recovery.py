"""hybrisfs recovery make, show, remove; hybrisfs recover"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import program
from hybrisfs.api.request import message_of
from hybrisfs.daemon.service import Daemon
from tests.cli.conftest import Run, typed
from tests.daemon.fake import DRAWN, EXPIRES, KIT, FakeVolume, FakeVolumes

CLOUD = "file:///clouds/a"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret.txt"
    path.write_text(f"{DRAWN}\n")
    return str(path)


def piped(text: str, *words: str) -> Result:
    return CliRunner().invoke(program, list(words), input=text)


# -- recovery make -------------------------------------------------------------------------------


def test_a_passphrase_is_drawn_and_shown_with_its_strength(photos: FakeVolume, run: Run) -> None:
    done = run("recovery", "make")
    assert done.exit_code == 0
    assert f"  {DRAWN}\n" in done.stdout and "103 bits" in done.stdout
    assert KIT[:8] in done.stdout and "All clouds have the kit." in done.stdout
    assert photos.recovery.given == [None]


def test_facts_for_scripts(photos: FakeVolume, run: Run) -> None:
    photos.recovery.states = ["complete", "unknown"]
    facts = json.loads(run("recovery", "make", "photos", "--json").stdout)
    assert facts == {
        "name": "photos",
        **message_of(photos.recovery.all()[0]),
        "passphrase": DRAWN,
        "bits": 103,
    }


def test_clouds_that_lack_it_are_named(photos: FakeVolume, run: Run) -> None:
    photos.recovery.states = ["complete", "unknown", "missing"]
    done = run("recovery", "make")
    assert done.exit_code == 0
    assert "reached: cloud-1, cloud-2 (missing)." in done.stdout and "cloud-0" not in done.stdout


@pytest.mark.parametrize(("name", "content"), [("kit.html", "<html>page</html>"), ("kit.txt", "page")])
def test_a_page_is_written_for_the_owner_only(
    photos: FakeVolume, run: Run, tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text("what was there before, and longer than the page")
    path.unlink()
    done = run("recovery", "make", "--page", str(path))
    assert done.exit_code == 0 and "Print" in done.stderr
    assert path.read_text() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_page_that_cannot_be_written_is_an_error_that_tells_that_the_kit_is_there(
    photos: FakeVolume, run: Run, tmp_path: Path
) -> None:
    done = run("recovery", "make", "--page", str(tmp_path / "no folder" / "kit.html"))
    assert done.exit_code == 1 and DRAWN in done.stdout
    assert "not written, the kit was made" in done.stderr


def test_a_passphrase_of_ones_own_comes_from_a_file(photos: FakeVolume, run: Run, secret: str) -> None:
    done = run("recovery", "make", "--passphrase-file", secret)
    assert done.exit_code == 0 and DRAWN not in done.output
    assert photos.recovery.given == [DRAWN]
    assert piped(f"{DRAWN}\n", "recovery", "make", "--passphrase-file", "-").exit_code == 0
    assert photos.recovery.given == [DRAWN, DRAWN]


def test_or_is_typed_twice_and_not_shown(photos: FakeVolume) -> None:
    done = typed(f"{DRAWN}\n{DRAWN}\n", "recovery", "make", "--ask")
    assert done.exit_code == 0 and DRAWN not in done.output
    assert photos.recovery.given == [DRAWN]
    done = typed(f"{DRAWN}\nsomething else\n", "recovery", "make", "--ask")
    assert done.exit_code == 130, "the two differ, and nothing more is typed"
    assert photos.recovery.given == [DRAWN]


def test_a_passphrase_that_will_not_do(photos: FakeVolume, run: Run, tmp_path: Path) -> None:
    for name, content, said in (
        ("short", b"short", "fewer than 12"),
        ("empty", b" \n", "is empty"),
        ("binary", b"\xff\xfe", "does not hold text"),
    ):
        (tmp_path / name).write_bytes(content)
        done = run("recovery", "make", "--passphrase-file", str(tmp_path / name))
        assert done.exit_code == 2 and said in done.stderr
    assert run("recovery", "make", "--passphrase-file", str(tmp_path / "none")).exit_code == 2


# -- recovery show, recovery remove --------------------------------------------------------------


def test_without_a_kit_it_says_what_that_means(photos: FakeVolume, run: Run) -> None:
    done = run("recovery", "show")
    assert done.exit_code == 1 and "no recovery kit" in done.stdout
    assert json.loads(run("recovery", "show", "--json").stdout) == {"name": "photos", "kits": []}


def test_kits_are_shown_with_what_each_cloud_has(photos: FakeVolume, run: Run) -> None:
    photos.recovery.states = ["complete", "complete"]
    done = run("recovery", "show")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].split()[0] == KIT[:8]
    assert "make a new kit" not in done.stdout
    photos.recovery.unsigned = True
    assert f"{KIT[:8]} is of an earlier version" in run("recovery", "show").stdout
    photos.recovery.states[1], photos.recovery.used = "old", True
    done = run("recovery", "show", "photos")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[2].split() == ["cloud-1", "old"]
    assert f"recovered by {KIT[:8]}: make a new kit" in done.stdout
    assert json.loads(run("recovery", "show", "--json").stdout)["kits"][0]["created"] == EXPIRES


def test_a_kit_is_removed(photos: FakeVolume, run: Run) -> None:
    photos.recovery.states = ["complete", "unknown"]
    done = run("recovery", "remove", KIT[:4], "--yes")
    assert done.exit_code == 0 and KIT[:8] in done.stdout and "cloud-1" in done.stdout
    facts = json.loads(run("recovery", "remove", KIT, "--json").stdout)
    assert facts == {"name": "photos", "kit": KIT, "left": ["cloud-1"]}
    done = run("recovery", "remove", "f")
    assert done.exit_code == 2 and "not a recovery kit" in done.stderr


# -- recover -------------------------------------------------------------------------------------


def test_recovering_by_a_file(served: Daemon, volumes: FakeVolumes, run: Run, secret: str) -> None:
    done = run("recover", "--cloud", CLOUD, "--passphrase-file", secret, "--name", "desk", "--as", "mine")
    assert done.exit_code == 0
    assert "belongs to the volume mine" in done.stdout
    assert "hybrisfs mount mine DIR" in done.stdout and "hybrisfs recovery make" in done.stdout
    assert "Not reached" not in done.stdout and "Too few" not in done.stdout
    assert volumes.own_names == ["desk"] and "mine" in volumes.opened


@pytest.mark.usefixtures("served")
def test_recovering_at_a_terminal(volumes: FakeVolumes) -> None:
    done = typed(f"{DRAWN}\n", "recover", "--cloud", CLOUD)
    assert done.exit_code == 0 and DRAWN not in done.output
    assert "lost" in volumes.opened


@pytest.mark.usefixtures("served")
def test_without_terminal_or_file_it_says_how(volumes: FakeVolumes, run: Run) -> None:
    done = run("recover", "--cloud", CLOUD)
    assert done.exit_code == 2 and "--passphrase-file" in done.stderr
    assert "lost" not in volumes.configs


@pytest.mark.usefixtures("served")
def test_the_wrong_passphrase_is_one_clear_error(volumes: FakeVolumes, run: Run, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("something else entirely")
    done = run("recover", "--cloud", CLOUD, "--passphrase-file", str(tmp_path / "wrong"))
    assert done.exit_code == 1
    assert done.stderr.startswith("hybrisfs: the passphrase is wrong:")
    assert "something else" not in done.output
    assert "lost" not in volumes.configs


@pytest.mark.usefixtures("served")
def test_missing_clouds_are_named(volumes: FakeVolumes, run: Run, secret: str) -> None:
    volumes.lost = ["file:///gone"]
    words = ("recover", "--cloud", CLOUD, "--passphrase-file", secret)
    done = run(*words)
    assert done.exit_code == 1 and "file:///gone" in done.stderr
    facts = json.loads(run(*words, "--incomplete", "--json").stdout)
    assert facts == {
        "volume": {"name": "lost", "clouds": [{"name": "cloud-0", "url": CLOUD}], "f": 1, "k": 1},
        "missing": ["file:///gone"],
        "agreed": False,
    }
    done = run(*words, "--incomplete", "--as", "again")
    assert "Not reached: file:///gone" in done.stdout and "Too few clouds" in done.stdout


@pytest.mark.usefixtures("served")
def test_who_named_too_few_clouds_hears_what_that_means(volumes: FakeVolumes, run: Run, secret: str) -> None:
    words = ("recover", "--cloud", CLOUD, "--passphrase-file", secret)
    assert "Only the kit says" not in run(*words).stdout
    volumes.few_named = True
    done = run(*words, "--as", "again")
    assert (
        done.exit_code == 0
        and "Fewer than 2 of the clouds" in done.stdout
        and "Only the kit says" in done.stdout
    )
    assert json.loads(run(*words, "--as", "third", "--json").stdout)["few_named"]


@pytest.mark.usefixtures("served")
def test_a_cloud_is_needed(run: Run) -> None:
    assert run("recover").exit_code == 2
