"""The package: what is in it; and to its removal on a bare Debian with systemd, as an ordinary user."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import program
from tests.cli.test_program import every_command
from tests.system.deadline import until
from tests.system.device import REPOSITORY
from tests.system.machine import ROOT, Machine

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can boot a machine"),
    pytest.mark.skipif(not (ROOT / "complete").exists(), reason="packaging/debian-root.sh makes the machine"),
    pytest.mark.timeout(900),
]


def build(checkout: Path, output: Path, **environment: str) -> Path:
    """Make the package from a checkout."""
    subprocess.run(
        [checkout / "packaging" / "build-deb.sh", output],
        env={**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none", **environment},
        check=True,
        timeout=600,
        stdout=subprocess.DEVNULL,
    )
    [package] = output.glob("*.deb")
    return package


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(REPOSITORY, tmp_path_factory.mktemp("package"))


@pytest.fixture
def machine(package: Path, tmp_path: Path) -> Iterator[Machine]:
    """A fresh machine on which the package has just been installed."""
    with Machine(tmp_path) as machine:
        shutil.copy(package, machine.root / "hybrisfs.deb")
        machine.as_root("dpkg -i /hybrisfs.deb")
        yield machine


def pid_of_service(machine: Machine) -> str:
    return machine.as_alice("systemctl --user show --property MainPID --value hybrisfs.service").strip()


def is_mounted(machine: Machine) -> bool:
    return machine.alice_can("grep -q ' fuse.hybrisfs ' /proc/self/mounts")


def log_out_let_cron_work_and_log_in(machine: Machine) -> None:
    """The service takes over from the daemon that a command had started while nobody was logged in."""
    machine.as_root("systemctl stop user@1000.service")
    assert not machine.alice_can("ls HybrisFS")
    machine.as_alice("env -u XDG_RUNTIME_DIR hybrisfs sync --wait; cat HybrisFS/letter")
    holder = "cat .local/state/hybrisfs/runtime/daemon.lock"
    first = machine.as_alice(holder)
    machine.as_root("systemctl start user@1000.service")
    machine.as_alice("hybrisfs status; hybrisfs sync --wait")
    assert machine.as_alice(holder).strip() == pid_of_service(machine) != first.strip()
    assert machine.as_alice("cat HybrisFS/letter") == "kept\n"
    machine.as_alice("env -u XDG_RUNTIME_DIR hybrisfs status")
    until(lambda: machine.alice_can("test -s $XDG_RUNTIME_DIR/hybrisfs/status.json"), "what panels read")


def log_out_and_in(machine: Machine) -> None:
    """The first program of a session finds the folder, for a login waits for it."""
    machine.as_root("systemctl stop user@1000.service")
    assert not machine.alice_can("ls HybrisFS")
    machine.as_root("systemctl start user@1000.service")  # what pam_systemd(8) waits for
    assert machine.as_alice("cat HybrisFS/letter") == "kept\n"


def log_in_though_the_daemon_does_not_come_up(machine: Machine) -> None:
    folder = ".config/systemd/user/hybrisfs.service.d"
    broken = "[Service]\\nType=notify\\nExecStart=\\nExecStart=/bin/false\\n"
    machine.as_alice(f"mkdir -p {folder}; printf '{broken}' >{folder}/broken.conf")
    machine.as_root("systemctl stop user@1000.service")
    machine.as_root("systemctl start user@1000.service")
    machine.as_alice("systemctl --user is-active basic.target")
    machine.as_alice(f"rm -r {folder}; systemctl --user daemon-reload")
    until(lambda: machine.alice_can("cat HybrisFS/letter"), "the mount to be back", 120)


def test_install_use_kill_stop_remove(machine: Machine) -> None:
    assert not machine.alice_can("systemctl --user is-enabled hybrisfs.service")
    machine.as_alice("hybrisfs doctor")
    completed = "COMP_WORDS='hybrisfs servi' COMP_CWORD=1 _HYBRISFS_COMPLETE=bash_complete hybrisfs"
    assert machine.as_alice(completed) == "plain,service\n"
    for file in ("man/man1/hybrisfs-status.1.gz", "applications/hybrisfs.desktop", "man/man1/hybrisfs.1.gz"):
        machine.as_alice(f"test -s /usr/share/{file}")
    machine.as_alice("hybrisfs quickstart; echo kept >HybrisFS/letter; sync HybrisFS/letter")

    assert not machine.alice_can("hybrisfs service status")
    machine.as_alice("hybrisfs service install")
    machine.as_alice("hybrisfs service status")
    assert machine.as_alice("cat HybrisFS/letter") == "kept\n"

    first = pid_of_service(machine)
    assert machine.as_alice(f"cat /proc/{first}/oom_score_adj") == "100\n", "programs go before it"
    limit = machine.as_alice("systemctl --user show --property MemoryHigh --value hybrisfs.service")
    assert 2 * int(limit) <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    machine.as_alice(f"kill -9 {first}")
    until(lambda: machine.alice_can("cat HybrisFS/letter"), "the mount to be back", 120)
    assert pid_of_service(machine) not in ("0", first)
    log = machine.as_root("journalctl -p err -o cat --user-unit hybrisfs.service")
    assert "hybrisfs." not in log.replace("hybrisfs.service", ""), "nothing of ours is an error"

    machine.as_alice("systemctl --user stop hybrisfs.service")
    assert not is_mounted(machine)
    assert not machine.alice_can("ls HybrisFS"), "an unmounted folder looks like an empty one"
    machine.as_alice("hybrisfs status")  # the socket starts the service
    assert machine.as_alice("cat HybrisFS/letter") == "kept\n"

    log_out_and_in(machine)
    log_out_let_cron_work_and_log_in(machine)
    log_in_though_the_daemon_does_not_come_up(machine)

    machine.as_alice("HYBRISFS_HOME=~/other hybrisfs quickstart")  # a daemon that systemd knows nothing of
    said = machine.as_root("dpkg -r hybrisfs")
    assert "hybrisfs.daemon" not in machine.as_root("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    machine.as_alice("ls HybrisFS")  # it is locked no longer
    assert "~/.local/state/hybrisfs" in said
    assert not is_mounted(machine)
    machine.as_alice("test -s .local/state/hybrisfs/volumes/home/keys.json")
    assert machine.as_alice("ls .local/share/hybrisfs/clouds") == "cloud-1\ncloud-2\ncloud-3\n"
    assert not machine.alice_can("systemctl --user is-active hybrisfs.socket")


def test_a_relay_begins_with_the_machine(machine: Machine) -> None:
    machine.as_root("systemctl enable --now hybrisfs-relay@alice")
    machine.as_alice("hybrisfs relay add home 127.0.0.1 --json | grep -o hfr1-[a-z2-7]* >code")
    machine.as_alice("hybrisfs quickstart; hybrisfs cloud add --code code")
    machine.as_alice("echo kept >HybrisFS/letter; hybrisfs sync --wait")
    heads = ".local/share/hybrisfs/relay/objects/home/heads"
    until(lambda: machine.alice_can(f"test -d {heads}"), "the head on the relay", 120)
    machine.as_root("dpkg -r hybrisfs")
    assert not machine.alice_can("systemctl is-active hybrisfs-relay@alice")
    assert not machine.alice_can("systemctl is-enabled hybrisfs-relay@alice")
    machine.as_alice("test -s .local/share/hybrisfs/relay/spaces.json")


def test_whoever_builds_it_gets_the_same_bytes(package: Path, tmp_path: Path) -> None:
    # Longer than what the kernel reads of the first line of a script.
    checkout, work, output = tmp_path / "checkout", tmp_path / ("long" * 60), tmp_path / "output"
    checkout.symlink_to(REPOSITORY)
    work.mkdir()
    again = build(checkout, output, TMPDIR=str(work), TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    assert filecmp.cmp(package, again, shallow=False)
    assert list(work.iterdir()) == []


def shipped() -> set[str]:
    """The files that the package has beside /usr/lib/hybrisfs, and links, below /usr."""
    desktop = REPOSITORY / "packaging" / "desktop"
    icons = "share/icons/hicolor/scalable"
    [metainfo] = desktop.glob("*.metainfo.xml")
    commands = every_command(program)
    groups = {command[:length] for command in commands for length in range(len(command))}
    pages = {"-".join(("hybrisfs", *command)) for command in (*commands, *groups)}
    documents = (
        "README.md",
        "SECURITY.md",
        "changelog.gz",
        "changelog.Debian.gz",
        "copyright",
        "hybrisfs.cdx.json",
    )
    return {
        "./etc/xdg/autostart/hybrisfs-tray.desktop",
        "bin/hybrisfs",
        "lib/systemd/system/hybrisfs-relay@.service",
        "lib/systemd/user/hybrisfs.service",
        "lib/systemd/user/hybrisfs.socket",
        "share/applications/hybrisfs.desktop",
        "share/kio/servicemenus/hybrisfs.desktop",
        "share/bash-completion/completions/hybrisfs",
        "share/fish/vendor_completions.d/hybrisfs.fish",
        "share/zsh/vendor-completions/_hybrisfs",
        "share/lintian/overrides/hybrisfs",
        f"share/metainfo/{metainfo.name}",
        f"{icons}/apps/hybrisfs.svg",
        *(f"{icons}/emblems/{path.name}" for path in desktop.glob("emblem-*.svg")),
        *(f"share/{one}-python/extensions/hybrisfs.py" for one in ("nautilus", "nemo", "caja")),
        *(f"share/man/man1/{page}.1.gz" for page in pages),
        *(f"share/doc/hybrisfs/{name}" for name in documents),
        *(f"share/doc/hybrisfs/docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md")),
    }


def test_what_is_in_it(package: Path) -> None:
    unpack = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    with unpack, tarfile.open(fileobj=unpack.stdout, mode="r|") as files:
        names = {entry.name.removeprefix("./usr/") for entry in files if not entry.isdir()}
    assert {name for name in names if not name.startswith("lib/hybrisfs/")} == shipped()


def test_it_lists_the_libraries_in_it_which_are_those_of_the_lock_file(package: Path) -> None:
    names, compiled, materials = set(), 0, {}
    unpack = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    with unpack, tarfile.open(fileobj=unpack.stdout, mode="r|") as files:
        for entry in files:
            assert (entry.uname, entry.gname) == ("root", "root")
            if found := re.search(r"/site-packages/([^/]+)-[^/-]+\.dist-info/METADATA$", entry.name):
                names.add(re.sub(r"[-_.]+", "-", found[1]).lower())
            content = files.extractfile(entry) if entry.isfile() else None
            if entry.name.endswith(".pyc") and content is not None:
                assert content.read(8)[4:] == b"\1\0\0\0", f"{entry.name} states a time"
                compiled += 1
            if entry.name.endswith("/doc/hybrisfs/hybrisfs.cdx.json") and content is not None:
                materials = json.load(content)
    assert compiled > 1000
    assert {one["name"] for one in materials["components"]} | {"hybrisfs"} == names
    locked = (REPOSITORY / "packaging" / "requirements.lock").read_text()
    for one in materials["components"]:
        assert f"\n{one['name']}=={one['version']} " in locked, one
        assert one["licenses"], one
        [digest] = one["hashes"]
        # Of these the lock file has no wheel for this machine: they are built from their source.
        assert digest["content"] in locked or one["name"] in ("wsgidav", "zfec"), one
