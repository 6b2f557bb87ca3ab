"""`hybrisfs setup`: what it asks, what it is told, and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from hybrisfs.service_manager import SERVICE, SOCKET
from tests.cli.conftest import Run, typed
from tests.daemon.fake import DRAWN, FakeVolumes
from tests.systemctl import Systemctl

CLOUDS = ["file:///mnt/a", "file:///mnt/b", "file:///mnt/c"]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    return Systemctl(tmp_path, monkeypatch)


@pytest.fixture
def no_manager(systemctl: Systemctl) -> None:
    """There is no systemd for this user."""
    systemctl.fail("show")


def answering(*answers: str) -> Result:
    return typed("".join(f"{answer}\n" for answer in answers), "setup")


STARTED = [f"enable {SERVICE} {SOCKET}", f"restart {SOCKET}", f"start {SERVICE}"]


def test_everything_can_be_an_option(served: Daemon, volumes: FakeVolumes, run: Run, tmp_path: Path) -> None:
    options = [word for url in CLOUDS for word in ("--cloud", url)]
    done = run("setup", "--name", "work", "--folder", str(tmp_path / "Work"), *options, "-f", "1", "--json")
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert facts["mountpoint"] == str(tmp_path / "Work")
    assert [cloud["url"] for cloud in facts["volume"]["clouds"]] == CLOUDS
    assert volumes.tried == CLOUDS


def test_the_kit_and_the_service_can_be_options(
    served: Daemon, volumes: FakeVolumes, run: Run, tmp_path: Path, systemctl: Systemctl
) -> None:
    page = tmp_path / "kit.txt"
    done = run("setup", "--name", "work", "--try", "--kit", str(page), "--service", "--json")
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert (facts["recovery"]["passphrase"], page.read_text()) == (DRAWN, "page")
    assert facts["service"]["installed"]
    assert [line for line in systemctl.told() if line in STARTED] == STARTED
    done = run("setup", "--name", "more", "--try", "--kit", str(page), "--no-kit")
    assert (done.exit_code, "exclude" in done.stderr) == (2, True)
    done = run("setup", "--name", "more", "--try", "--invite", "--json")
    assert (done.exit_code, "device invite" in done.stderr) == (2, True)
    assert "more" not in volumes.configs


def test_it_asks_whether_to_start_at_login_where_it_can(
    served: Daemon, volumes: FakeVolumes, systemctl: Systemctl
) -> None:
    assert answering("work", "", "", "", "n", "y", "n").exit_code == 0
    assert [line for line in systemctl.told() if line in STARTED] == STARTED


def test_without_a_terminal_nothing_is_asked(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    for words, missing in (([], "--name"), (["--name", "work"], "--cloud")):
        done = run("setup", *words)
        assert (done.exit_code, f"give {missing}" in done.stderr) == (2, True)
    done = run("setup", "--name", "work", "--try", "--cloud", CLOUDS[0])
    assert (done.exit_code, "exclude" in done.stderr) == (2, True)
    assert "work" not in volumes.configs


def test_a_cloud_that_does_not_work_changes_nothing(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    done = run("setup", "--name", "work", "--cloud", "/mnt/a")
    assert (done.exit_code, "it is no URL" in done.stderr) == (2, True)
    assert "work" not in volumes.configs


def test_folders_on_this_disk(served: Daemon, volumes: FakeVolumes, run: Run, home: Home) -> None:
    assert run("setup", "--name", "work", "--try").exit_code == 0
    urls = [cloud.url for cloud in volumes.configs["work"].clouds]
    assert urls == [(home.data / "clouds" / "work" / f"cloud-{number}").as_uri() for number in (1, 2, 3)]
    assert volumes.opened["work"].mountpoint == home.default_mountpoint.with_name("work")


def test_it_asks_again_for_what_will_not_do(
    served: Daemon, volumes: FakeVolumes, no_manager: None, tmp_path: Path
) -> None:
    (tmp_path / "full" / "file").mkdir(parents=True)
    volumes.secrets.clear()
    done = answering(
        "photos",  # is taken
        "a/b",  # is not a name
        "work",
        str(tmp_path / "full"),  # is not empty
        str(tmp_path / "Work"),
        "/mnt/a",  # is no URL
        "webdavs://nas/a",
        "ada",
        "wrong",
        "webdavs://nas/a",
        "ada",
        "right",
        "webdavs://nas/a",  # is there already
        "",
        "n",  # one cloud is not all
        CLOUDS[1],
        CLOUDS[2],
        "",
        "y",  # a recovery kit
        str(tmp_path / "full"),  # is there already
        str(tmp_path / "no" / "kit.html"),  # has no folder
        str(tmp_path / "kit.html"),
        "n",  # no other machine
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "kit.html").read_text() == "<html>page</html>"
    assert (tmp_path / "kit.html").stat().st_mode & 0o777 == 0o600
    assert DRAWN in done.output
    assert [cloud.url for cloud in volumes.configs["work"].clouds] == ["webdavs://nas/a", *CLOUDS[1:]]
    assert volumes.secrets == {"webdavs://nas/a": {"user": "ada", "password": "right"}}
    assert volumes.opened["work"].mountpoint == tmp_path / "Work"
    for told in (
        "there is a volume photos",
        "cannot name a volume",
        "not empty",
        "it is no URL",
        "wrong password",
    ):
        assert told in done.output
    assert "right" not in done.output


def test_it_can_be_tried_without_clouds(served: Daemon, volumes: FakeVolumes, no_manager: None) -> None:
    assert answering("work", "", "", "n", "", "y", "n", "n").exit_code == 0
    assert len(volumes.configs["work"].clouds) == 3


def test_with_five_clouds_it_asks_how_many_may_fail(
    served: Daemon, volumes: FakeVolumes, no_manager: None, tmp_path: Path
) -> None:
    clouds = [f"file:///mnt/{letter}" for letter in "abcde"]
    assert answering("work", str(tmp_path / "Work"), *clouds, "", "3", "2", "n", "n").exit_code == 0
    assert volumes.configs["work"].f == 2
