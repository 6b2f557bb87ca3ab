"""The units for systemd, and what is told to systemctl. With systemd itself: system/test_fresh_debian.py."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hybrisfs import service_manager
from hybrisfs.errors import HybrisError
from hybrisfs.home import Home
from hybrisfs.service_manager import SERVICE, SOCKET, unit_texts
from tests.daemon.conftest import home
from tests.systemctl import Systemctl

__all__ = ["home"]

# Settings that make systemd set no_new_privs for a user's service (systemd.exec(5)): fusermount3 would fail.
_NO_NEW_PRIVILEGES = re.compile(
    r"^(NoNewPrivileges|Private|Protect|Restrict|SystemCall|MemoryDeny|LockPersonality|DynamicUser)",
    re.MULTILINE,
)


def test_with_the_usual_folders_the_units_are_the_same_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    one, other = (unit_texts(Home.from_environment({"HOME": home})) for home in ("/home/a", "/home/b"))
    assert one == other
    assert "ListenStream=%h/.local/state/hybrisfs/runtime/daemon.sock\n" in one[SOCKET]
    assert "Environment" not in one[SERVICE]
    assert f'ExecStart="{sys.executable}" -m hybrisfs.daemon\n' in one[SERVICE]


def test_a_home_of_ones_own_is_passed_on_whatever_its_name_is() -> None:
    variables = {"HYBRISFS_HOME": '/x/50% "off"\\'}
    texts = unit_texts(Home.from_environment(variables))
    assert 'Environment="HYBRISFS_HOME=/x/50%% \\"off\\"\\\\"\n' in texts[SERVICE]
    assert 'ListenStream=/x/50%% "off"\\/runtime/daemon.sock\n' in texts[SOCKET]


def test_a_state_folder_of_ones_own_has_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/y")
    texts = unit_texts(Home.from_environment({"HOME": "/h", "XDG_STATE_HOME": "/y"}))
    assert "ListenStream=/y/hybrisfs/runtime/daemon.sock\n" in texts[SOCKET]


def test_variables_that_choose_folders() -> None:
    chosen = {"XDG_STATE_HOME": "/y", "PATH": "/bin", "XDG_DATA_HOME": ""}
    assert Home.below(Path("/x")).variables(chosen) == {"HYBRISFS_HOME": "/x"}
    assert Home.from_environment({"HOME": "/h"}).variables(chosen) == {"XDG_STATE_HOME": "/y"}


def test_a_path_that_systemd_cannot_listen_at_is_refused() -> None:
    with pytest.raises(HybrisError, match="too long"):
        unit_texts(Home.below(Path("/" + "x" * 100)))


def test_nothing_keeps_fusermount_from_becoming_root() -> None:
    text = unit_texts(Home.below(Path("/x")))[SERVICE]
    assert _NO_NEW_PRIVILEGES.search(text) is None
    assert "Type=notify\n" in text
    assert "WatchdogSec=" in text


def test_who_may_read_the_objects_of_a_folder_is_as_without_systemd() -> None:
    assert "UMask" not in unit_texts(Home.below(Path("/x")))[SERVICE]


def test_systemd_never_gives_up_either() -> None:
    text = unit_texts(Home.below(Path("/x")))[SERVICE]
    assert "Restart=on-failure\n" in text
    assert "StartLimitIntervalSec=0\n" in text


# -- with a systemctl that only writes down what it is told ------------------------------------------


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    monkeypatch.setattr(service_manager, "_PACKAGED", (tmp_path / "packaged",))
    return Systemctl(tmp_path, monkeypatch)


def enable(tmp_path: Path) -> None:
    wants = tmp_path / "config/systemd/user/default.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / SERVICE).symlink_to("../hybrisfs.service")


def test_install_writes_the_units_and_starts_them(home: Home, systemctl: Systemctl, tmp_path: Path) -> None:
    facts = service_manager.install(home)
    folder = tmp_path / "config/systemd/user"
    assert {path.name: path.read_text() for path in folder.iterdir()} == unit_texts(home)
    assert [line for line in systemctl.told() if not line.startswith(("show", "reset"))] == [
        "daemon-reload",
        f"enable {SERVICE} {SOCKET}",
        f"restart {SOCKET}",
        f"start {SERVICE}",
    ]
    assert (facts["installed"], facts["state"], facts["pid"], facts["current"]) == (True, "active", 77, True)


def test_install_leaves_what_a_package_brought(home: Home, systemctl: Systemctl, tmp_path: Path) -> None:
    (tmp_path / "packaged").mkdir()
    for name, text in unit_texts(home).items():
        (tmp_path / "packaged" / name).write_text(text)
    assert service_manager.install(home)["packaged"]
    assert not (tmp_path / "config/systemd/user").exists()
    assert service_manager.remove() == []
    assert f"disable --now {SERVICE} {SOCKET}" in systemctl.told()


def test_remove_takes_away_what_install_wrote(home: Home, systemctl: Systemctl, tmp_path: Path) -> None:
    service_manager.install(home)
    folder = tmp_path / "config/systemd/user"
    assert sorted(service_manager.remove()) == [str(folder / SERVICE), str(folder / SOCKET)]
    assert list(folder.iterdir()) == []
    with pytest.raises(HybrisError, match="not installed"):
        service_manager.remove()


def test_systemd_starts_the_daemon_only_when_the_service_is_that_of_this_home(
    home: Home, systemctl: Systemctl, tmp_path: Path
) -> None:
    assert not service_manager.start(home)
    service_manager.install(home)
    assert not service_manager.start(home)  # not enabled
    enable(tmp_path)
    assert service_manager.start(home)
    assert systemctl.told()[-1] == f"start {SERVICE}"
    assert not service_manager.start(Home.below(tmp_path / "another"))


def test_a_service_that_cannot_be_started_says_where_to_look(
    home: Home, systemctl: Systemctl, tmp_path: Path
) -> None:
    systemctl.fail("start")
    with pytest.raises(HybrisError, match=r"(?s)it is broken.*journalctl --user"):
        service_manager.install(home)


def test_without_systemd_nothing_is_written(home: Home, systemctl: Systemctl, tmp_path: Path) -> None:
    systemctl.fail("show")
    with pytest.raises(HybrisError, match="Log in directly"):
        service_manager.install(home)
    assert not (tmp_path / "config/systemd").exists()
    assert service_manager.status(home)["manager"] is False
