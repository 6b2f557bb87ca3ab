"""`hybrisfs conflicts merge`: texts are merged at once, or in the program of a person, a real one."""

from __future__ import annotations

import shlex
import stat
import sys
from pathlib import Path

import pytest

from cli import merge_tool
from hybrisfs.client import scratch_folder
from hybrisfs.errors import HybrisError
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume
from tests.daemon.fake_merging import FakeMerging

PATH = "docs/notes.txt"
OTHER = "docs/notes (conflict, den, 2026-11-21).txt"
BASE = b"one\ntwo\nthree\nfour\n"
OURS = BASE.replace(b"one", b"ada's")
THEIRS = BASE.replace(b"four", b"bob's")


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no window, and no program that this machine happens to have."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "HYBRISFS_MERGE_TOOL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def merging(photos: FakeVolume) -> FakeMerging:
    photos.merging.versions = {PATH: OURS, OTHER: THEIRS}
    photos.merging.base = BASE
    return photos.merging


@pytest.fixture
def meeting(merging: FakeMerging) -> FakeMerging:
    """Both have changed one line."""
    merging.versions[OTHER] = BASE.replace(b"one", b"bob's")
    return merging


def tool(folder: Path, code: str, *arguments: str) -> str:
    """The command of a program that runs *code*."""
    script = folder / "tool.py"
    script.write_text(f"import os, pathlib, sys\nlocal, base, remote, merged = sys.argv[1:5]\n{code}\n")
    return shlex.join([sys.executable, str(script), *arguments])


def left() -> list[Path]:
    return list(scratch_folder().glob("hybrisfs-merge-*"))


def test_changes_in_different_places_are_merged_at_once(merging: FakeMerging, run: Run) -> None:
    done = run("conflicts", "merge", OTHER)
    assert done.exit_code == 0
    assert done.stdout == (
        f"Merged 2 versions of {PATH}. hybrisfs versions list shows what each of them was.\n"
    )
    assert merging.settled == [(PATH, b"ada's\ntwo\nthree\nbob's\n")]
    assert left() == []


def test_a_dry_run_shows_what_would_change(merging: FakeMerging, run: Run) -> None:
    merging.versions[OTHER] = THEIRS.replace(b"bob's", b"bob's \x1b[2J")
    done = run("conflicts", "merge", PATH, "--dry-run")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"--- {PATH}",
        f"+++ {PATH} (merged)",
        "@@ -1,4 +1,4 @@",
        " ada's",
        " two",
        " three",
        "-four",
        "+bob's \\e[2J",
    ]
    assert merging.settled == []


def test_a_dry_run_of_what_is_for_a_person(meeting: FakeMerging, run: Run) -> None:
    done = run("conflicts", "merge", PATH, "--dry-run", "--tool", "false")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "they change the same lines" in done.stderr
    assert meeting.settled == []


def test_without_a_program_or_a_terminal(meeting: FakeMerging, run: Run) -> None:
    done = run("conflicts", "merge", PATH)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "they change the same lines" in done.stderr
    assert "--tool" in done.stderr
    assert "HYBRISFS_MERGE_TOOL" in done.stderr
    assert (meeting.settled, left()) == ([], [])


# -- programs ------------------------------------------------------------------------------------

MERGES = """
assert pathlib.Path(local).read_bytes() == pathlib.Path(merged).read_bytes()
texts = [pathlib.Path(one).read_text() for one in (local, base, remote)]
pathlib.Path(merged).write_text("|".join(texts))
"""


@pytest.mark.parametrize("by", ["option", "variable"])
@pytest.mark.parametrize("base", [BASE, None])
def test_a_program_merges(
    meeting: FakeMerging,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    base: bytes | None,
) -> None:
    meeting.base = base
    command = tool(tmp_path, MERGES)
    if by == "variable":
        monkeypatch.setenv("HYBRISFS_MERGE_TOOL", command)
    done = run("conflicts", "merge", PATH, *(["--tool", command] if by == "option" else []))
    assert done.exit_code == 0, done.stderr
    [(path, content)] = meeting.settled
    assert path == PATH
    assert content.split(b"|") == [OURS, base or b"", BASE.replace(b"one", b"bob's")]
    assert left() == []


def test_names_in_a_command_stand_for_files_and_are_in_the_environment(
    meeting: FakeMerging, run: Run, tmp_path: Path
) -> None:
    facts = tmp_path / "facts"
    code = f"""
assert merged == os.environ["LOCAL"] and remote == "--x=" + os.environ["MERGED"] and base == "$LOCALE"
path = pathlib.Path(os.environ["MERGED"])
pathlib.Path({str(facts)!r}).write_text(f"{{path.name}} {{path.parent.stat().st_mode & 0o777:o}}")
path.write_text("done")
"""
    command = tool(tmp_path, code, "one", "$LOCALE", "--x=${MERGED}", "$LOCAL")
    done = run("conflicts", "merge", PATH, "--tool", command)
    assert done.exit_code == 0, done.stderr
    assert meeting.settled == [(PATH, b"done")]
    assert facts.read_text() == "MERGED.txt 700"


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("pathlib.Path(merged).write_text('half'); sys.exit(3)", "ended with status 3"),
        ("", "has not changed MERGED"),
        ("os.remove(merged); os.symlink(remote, merged)", "has not changed MERGED"),
        ("os.remove(merged)", "has not changed MERGED"),
    ],
)
def test_a_program_that_did_not_merge(
    meeting: FakeMerging, run: Run, tmp_path: Path, code: str, complaint: str
) -> None:
    done = run("conflicts", "merge", PATH, "--tool", tool(tmp_path, code))
    assert (done.exit_code, done.stdout) == (1, "")
    assert complaint in done.stderr
    assert (meeting.settled, left()) == ([], [])


@pytest.mark.parametrize(
    ("command", "code", "complaint"),
    [
        ("/no/such/program", 1, "No such file"),
        ("'open", 2, "is not a command"),
        ("'' x", 2, "is empty"),
        (" ", 2, "is empty"),
    ],
)
def test_a_command_that_is_none(
    meeting: FakeMerging, run: Run, command: str, code: int, complaint: str
) -> None:
    done = run("conflicts", "merge", PATH, "--tool", command)
    assert (done.exit_code, done.stdout) == (code, "")
    assert complaint in done.stderr
    assert (meeting.settled, left()) == ([], [])


def test_no_shell_reads_the_command(meeting: FakeMerging, run: Run, tmp_path: Path) -> None:
    command = tool(tmp_path, "pathlib.Path(merged).write_text(sys.argv[5])") + " '; touch x' $(touch y)"
    run(
        "conflicts",
        "merge",
        PATH,
        "--tool",
        command.replace(" '; touch", " $LOCAL $BASE $REMOTE $MERGED '; touch"),
    )
    assert meeting.settled == [(PATH, b"; touch x")]


def test_what_a_person_has_merged_is_not_thrown_away(meeting: FakeMerging, run: Run, tmp_path: Path) -> None:
    meeting.refusal = HybrisError(f"{PATH} was not changed", "another version came while they were merged")
    done = run("conflicts", "merge", PATH, "--tool", tool(tmp_path, MERGES))
    assert done.exit_code == 1
    told, refusal = done.stderr.splitlines()
    assert "another version came" in refusal
    [file] = left()
    assert told == f"What you have merged is in {file}."
    assert file.read_bytes().startswith(OURS)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.unlink()


def test_a_program_is_not_given_three_versions(meeting: FakeMerging, run: Run, tmp_path: Path) -> None:
    meeting.versions["docs/third"] = b"third"
    done = run("conflicts", "merge", PATH, "--tool", tool(tmp_path, MERGES))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "has 3 versions" in done.stderr
    assert (meeting.settled, left()) == ([], [])


@pytest.mark.parametrize("name", ["notes.txt", "notes.$(touch x)", "notes", "a.b c"])
def test_the_end_of_a_name_is_kept_when_it_is_plain(
    meeting: FakeMerging, run: Run, tmp_path: Path, name: str
) -> None:
    meeting.versions = {name: OURS, OTHER: BASE.replace(b"one", b"bob's")}
    code = "pathlib.Path(merged).write_text(pathlib.Path(merged).name)"
    assert run("conflicts", "merge", name, "--tool", tool(tmp_path, code)).exit_code == 0
    [(_, content)] = meeting.settled
    assert content == (b"MERGED.txt" if name == "notes.txt" else b"MERGED")


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("meld", ["--output=MERGED", "LOCAL", "BASE", "REMOTE"]),
        ("kdiff3", ["-o", "MERGED", "BASE", "LOCAL", "REMOTE"]),
        ("vimdiff", ["-f", "-c", "4wincmd w | wincmd J", "LOCAL", "BASE", "REMOTE", "MERGED"]),
    ],
)
def test_known_programs_are_found_and_get_their_arguments(
    meeting: FakeMerging,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    arguments: list[str],
) -> None:
    """A fake program of that name."""
    place = tmp_path / "bin"
    place.mkdir()
    file = place / program
    code = "import os, sys\nopen(os.environ['MERGED'], 'w').write(chr(0).join(sys.argv[1:]))\n"
    file.write_text(f"#!{sys.executable}\n{code}")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(place))
    if program == "vimdiff":  # it needs a terminal
        assert run("conflicts", "merge", PATH).exit_code == 1
        command = ["--tool", "vimdiff"]
    else:
        assert run("conflicts", "merge", PATH).exit_code == 1
        monkeypatch.setenv("DISPLAY", ":0")
        command = []
    assert run("conflicts", "merge", PATH, *command).exit_code == 0
    [(_, content)] = meeting.settled
    found = [word.replace(".txt", "") for word in content.decode().split("\0")]
    folder = Path(found[-1]).parent
    assert [word.replace(f"{folder}/", "") for word in found] == arguments


def test_a_program_in_the_terminal_is_found_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vimdiff").write_text("")
    (tmp_path / "vimdiff").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert merge_tool._installed() is None
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert merge_tool._installed() == "vimdiff"


def test_a_large_file_is_refused(meeting: FakeMerging, run: Run, tmp_path: Path) -> None:
    code = "pathlib.Path(merged).write_bytes(bytes((16 << 20) + 1))"
    done = run("conflicts", "merge", PATH, "--tool", tool(tmp_path, code))
    assert done.exit_code == 2
    assert "more than 16 MiB" in done.stderr
    assert meeting.settled == []
    for file in left():
        file.unlink()
