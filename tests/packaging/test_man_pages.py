"""The man pages: each says all that its command needs, in a form that man reads without a complaint."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import EXIT_CODES, program
from hybrisfs.home import Home
from tests.cli.test_program import every_command
from tests.system.device import REPOSITORY
from tests.system.shell import tool
from tests.test_architecture import READS_THE_ENVIRONMENT, nodes, whole_product

_VARIABLE = re.compile(r"_?[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_OF_OTHERS = re.compile(r"(HYBRISFS|XDG|DBUS|AWS|AZURE|GOOGLE|RCLONE|SSH)_[A-Z_]+")
_SET_FOR_CHILDREN = {"_FUSE_COMMFD", "XDG_ACTIVATION_TOKEN"}


def written(folder: Path) -> dict[str, str]:
    subprocess.run(
        [sys.executable, REPOSITORY / "packaging" / "man_pages.py", folder, "1.2.3", "2026-11-29"],
        cwd=REPOSITORY,
        check=True,
        timeout=60,
    )
    return {path.stem: path.read_text() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("man1")


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, str]:
    return written(folder)


def plain(page: str) -> str:
    """What is read, without the language of man(7)."""
    return re.sub(r"\\f[BIP]|\\[%&]", "", page).replace("\\-", "-").replace("\\e", "\\")


def sections(page: str) -> list[str]:
    return [line[4:].strip('"') for line in page.splitlines() if line.startswith(".SH ")]


def test_every_command_and_group_has_a_page(pages: dict[str, str]) -> None:
    commands = every_command(program)
    groups = {command[:length] for command in commands for length in range(len(command))}
    assert pages.keys() == {"-".join(("hybrisfs", *command)) for command in (*commands, *groups)}


def test_headers_and_sections(pages: dict[str, str]) -> None:
    told = ["EXIT STATUS", "ENVIRONMENT", "FILES"]
    for name, page in pages.items():
        assert plain(page).startswith(f'.TH {name.upper()} 1 2026-11-29 "HybrisFS 1.2.3" "User Commands"\n')
        optional = {"COMMANDS", "EXAMPLES"}
        found = [one for one in sections(page) if one not in optional]
        assert found == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", *told, "SEE ALSO"]
    assert all("EXAMPLES" in sections(pages["-".join(("hybrisfs", *one))]) for one in every_command(program))


def test_the_same_bytes_are_written_again(pages: dict[str, str], tmp_path: Path) -> None:
    assert written(tmp_path) == pages


def test_related_pages_are_there(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        related = re.findall(r"([\w.-]+)\((\d)\)", plain(page).partition('.SH "SEE ALSO"')[2])
        assert {one for one, _ in related if one.startswith("hybrisfs")} <= pages.keys()
        assert (name, "1") not in related
    assert "fusermount3(1)" in plain(pages["hybrisfs-mount"])
    assert "hybrisfs-cloud(1),\nhybrisfs-cloud-add(1)" in plain(pages["hybrisfs-cloud-replace"])
    assert "systemd.service(5)" in plain(pages["hybrisfs-service"])


def test_files_are_where_the_program_has_them(pages: dict[str, str]) -> None:
    home = Home.from_environment({"HOME": "~"})
    told = plain(pages["hybrisfs"]).partition(".SH FILES\n")[2]
    for path in (home.credentials, home.volume_config("NAME") / "volume.json", home.cache, home.runtime):
        assert f"\n{path}\n" in told


def test_exit_codes_are_those_of_the_documentation(pages: dict[str, str]) -> None:
    documented = (REPOSITORY / "docs" / "commands.md").read_text().partition("## Exit codes")[2]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", documented, re.MULTILINE)] == list(EXIT_CODES)
    for code, meaning in EXIT_CODES.items():
        assert f".TP\n{code}\n{meaning}\n" in plain(pages["hybrisfs-sync"])


def variables_of(name: str, source: str) -> set[str]:
    """The environment variables that a module names."""
    form = _VARIABLE if name in READS_THE_ENVIRONMENT else _OF_OTHERS
    texts = {
        one.value for one in nodes(source) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }
    own = {one.id for one in nodes(source) if isinstance(one, ast.Name)}  # in its __all__
    return {text for text in texts if form.fullmatch(text)} - own - _SET_FOR_CHILDREN


def test_every_variable_that_the_program_reads_is_told(pages: dict[str, str]) -> None:
    read = set().union(*(variables_of(name, source) for name, source in whole_product()))
    for page in (REPOSITORY / "docs").glob("*.md"):
        read |= set(re.findall(r"\b(?:RCLONE|AWS|AZURE|GOOGLE|XDG)_[A-Z_]+", page.read_text()))
    assert {"HYBRISFS_HOME", "XDG_RUNTIME_DIR", "NOTIFY_SOCKET", "DISPLAY", "RCLONE_CONFIG_PASS"} <= read
    told = re.search(r"\.SH ENVIRONMENT\n(.*?)\.SH", plain(pages["hybrisfs"]), re.DOTALL)
    assert told is not None
    terms = ", ".join(re.findall(r"\.TP\n(.*)", told[1])).split(", ")
    assert read - set(terms) == set()


def test_the_form_is_right(pages: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        [tool("mandoc"), "-T", "lint", *folder.iterdir()], capture_output=True, text=True, timeout=60
    )
    complaints = [line for line in done.stdout.splitlines() if "STYLE: input text line longer" not in line]
    assert complaints == []
