"""Where the files are: XDG by default, one folder with HYBRISFS_HOME, readable by the owner only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.home import Home


def test_defaults_follow_xdg() -> None:
    home = Home.from_environment({"HOME": "/home/ann"})
    assert home.config == Path("/home/ann/.config/hybrisfs")
    assert home.state == Path("/home/ann/.local/state/hybrisfs")
    assert home.cache == Path("/home/ann/.cache/hybrisfs")
    assert home.data == Path("/home/ann/.local/share/hybrisfs")
    assert home.default_mountpoint == Path("/home/ann/HybrisFS")


def test_xdg_variables_are_obeyed_when_absolute(tmp_path: Path) -> None:
    values = {
        "HOME": "/home/ann",
        "XDG_CONFIG_HOME": "/c",
        "XDG_STATE_HOME": "relative",
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    home = Home.from_environment(values)
    assert home.config == Path("/c/hybrisfs")
    assert home.state == Path("/home/ann/.local/state/hybrisfs")


def test_socket_and_locks_are_at_one_place_whatever_the_session(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    home = Home.from_environment({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(session)})
    without = Home.from_environment({"HOME": str(tmp_path)})
    assert home.socket == without.socket
    assert home.daemon_lock == without.daemon_lock
    assert home.runtime == tmp_path / ".local/state/hybrisfs/runtime"


def test_the_sessions_runtime_folder_leads_to_ours(tmp_path: Path) -> None:
    session = tmp_path / "session"
    home = Home.from_environment({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(session)})
    home.link_session()  # there is no session
    session.mkdir()
    link = session / "hybrisfs"
    home.prepare()
    for _ in range(2):
        home.link_session()
        assert link.readlink() == home.runtime
    other = Home.from_environment({"HOME": str(tmp_path / "other"), "XDG_RUNTIME_DIR": str(session)})
    other.link_session()
    assert link.readlink() == home.runtime
    link.unlink()
    link.symlink_to("elsewhere")
    home.link_session()
    assert link.readlink() == home.runtime
    link.unlink()
    link.mkdir()  # of an earlier version
    home.link_session()
    assert link.readlink() == home.runtime
    link.unlink()
    link.mkdir()
    (link / "file").touch()
    with pytest.raises(OSError, match="not empty"):
        home.link_session()
    Home.below(tmp_path / "own").link_session()


def test_hybrisfs_home_moves_everything(tmp_path: Path) -> None:
    home = Home.from_environment({"HYBRISFS_HOME": str(tmp_path), "XDG_CONFIG_HOME": "/c", "HOME": "/h"})
    places = (home.config, home.state, home.cache, home.data, home.runtime, home.default_mountpoint)
    assert all(place.is_relative_to(tmp_path) for place in places)
    assert len(set(places)) == len(places)


def test_a_relative_hybrisfs_home_means_the_same_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = Home.from_environment({"HYBRISFS_HOME": "device"})
    assert home.root == tmp_path / "device"
    assert Home.from_environment(home.environment()) == home


def test_folders_are_private_even_if_they_were_not(tmp_path: Path) -> None:
    home = Home.below(tmp_path / "home")
    home.state.mkdir(parents=True, mode=0o755)
    home.prepare()
    for folder in (home.config, home.state, home.cache, home.data, home.runtime):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"")
    with pytest.raises(HybrisError, match=str(tmp_path / "home" / "config")):
        Home.below(tmp_path / "home").prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_strangers_folder_is_refused(tmp_path: Path) -> None:
    home = Home.below(tmp_path / "home")
    home.runtime.mkdir(parents=True)
    os.chown(home.runtime, 12345, 12345)
    with pytest.raises(HybrisError, match="belongs to another user"):
        home.prepare()


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "-x", "a b", "a\n", "ä", "x" * 65])
def test_volume_names_cannot_leave_their_folder(name: str) -> None:
    home = Home.below(Path("/home"))
    for folder in (home.volume_config, home.volume_state):
        with pytest.raises(UsageError):
            folder(name)


def test_each_volume_has_its_own_folders() -> None:
    home = Home.below(Path("/home"))
    assert home.volume_state("photos") == Path("/home/state/volumes/photos")
    assert home.volume_config("photos") != home.volume_state("photos")
