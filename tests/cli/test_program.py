"""The program around the commands: help, start-up time, failures without tracebacks."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.main import Program, program
from hybrisfs import VERSION
from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume

REPOSITORY = Path(__file__).resolve().parents[2]
_NEW_NAMES = (("volume", "create"), ("setup",), ("device", "join"))  # their NAME is to be given


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = (*path, name)
        found += every_command(command, inner) if isinstance(command, click.Group) else [inner]
    return found


@pytest.mark.parametrize("command", every_command(program), ids=" ".join)
def test_every_command_has_help_with_an_example(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert re.search(rf"Examples?:\n  .*hybrisfs {' '.join(command)}", result.stdout)
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def groups(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    context, found = click.Context(group), list[tuple[str, ...]]()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found += [(*path, name), *groups(command, (*path, name))]
    return found


@pytest.mark.parametrize("group", groups(program), ids=" ".join)
def test_lists_of_commands_have_whole_sentences(run: Run, group: tuple[str, ...]) -> None:
    listed = run(*group, "--help").stdout.partition("Commands:\n")[2]
    sentences = re.split(r"\n  (?=\S)", listed.partition("\n\n")[0].strip())
    assert len(sentences) > 1 or "drop" in listed
    assert [one for one in sentences if not one.endswith(".") or one.endswith("...")] == []


def commands_named_in(text: str) -> list[tuple[str, ...]]:
    """The commands of which a text speaks: two words after "hybrisfs" where the first is a group."""
    found: list[tuple[str, ...]] = []
    for name, inner in re.findall(r"\bhybrisfs ([a-z]+)(?: ([a-z][\w.-]*\w))?", text):
        command = program.get_command(click.Context(program), name)
        if command is not None:
            found.append((name, inner) if isinstance(command, click.Group) and inner else (name,))
    return found


@pytest.mark.parametrize("package", ["cli", "dashboard", "hybrisfs"])
def test_every_command_that_a_message_names_is_there(package: str) -> None:
    assert commands_named_in("see hybrisfs recovery output.show") == [("recovery", "output.show")]
    known = {command[:length] for command in every_command(program) for length in (1, 2)}
    texts = [
        (module, node.value)
        for module in (REPOSITORY / package).rglob("*.py")
        for statement in ast.parse(module.read_text()).body[
            1:
        ]  # without the head, which may specify a format
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {(module, command) for module, text in texts for command in commands_named_in(text)}
    assert named
    assert {(module, command) for module, command in named if command not in known} == set()


def test_the_help_lists_each_command_once(run: Run) -> None:
    said = run("--help").stdout
    first = [line.split()[0] for line in said.splitlines() if re.match(r"  [a-z]+ +[A-Z]", line)]
    assert sorted(first) == sorted(program.list_commands(click.Context(program)))
    assert [line for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")][:3] == [
        "Options:",
        "Begin:",
        "Every day:",
    ]


@pytest.mark.parametrize(("asked", "colours"), [("1", False), ("", True)])
def test_no_colours_are_sent_where_none_are_wanted(home: Home, asked: str, colours: bool) -> None:
    """https://no-color.org"""
    shown = "import click, sys; from cli.main import program; import cli.daemon as d; "
    echo = "d.daemon.callback = lambda **_: click.secho('x', fg='red')"
    call = "sys.stdout.isatty = lambda: True; program.main(['daemon'])"
    done = subprocess.run(
        [sys.executable, "-c", f"{shown}{echo}; {call}"],
        env={**os.environ, "NO_COLOR": asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout == "\x1b[31mx\x1b[0m\n") is colours


def test_all_commands_are_there() -> None:
    assert {" ".join(command) for command in every_command(program)} == {
        "events",
        "log",
        "metrics",
        "cost",
        "quickstart",
        "setup",
        "volume create",
        "volume delete",
        "volume leave",
        "volume rename",
        "volume list",
        "volume rebuild",
        "volume redundancy",
        "volume set",
        "mount",
        "umount",
        "daemon",
        "service install",
        "service remove",
        "service status",
        "doctor",
        "status",
        "ui",
        "tray",
        "pending",
        "sync",
        "pin",
        "unpin",
        "evict",
        "copies list",
        "copies remove",
        "copies set",
        "label add",
        "label list",
        "ignore add",
        "ignore list",
        "ignore remove",
        "label remove",
        "share add",
        "share list",
        "share revoke",
        "limit",
        "pause",
        "resume",
        "cache drop",
        "conflicts list",
        "conflicts keep",
        "conflicts keep-all",
        "conflicts merge",
        "deletions list",
        "deletions show",
        "deletions accept",
        "deletions undo",
        "device check-proof",
        "device invite",
        "device join",
        "device keep",
        "device list",
        "device proof",
        "device rename",
        "device role",
        "device remove",
        "recovery make",
        "recovery show",
        "recovery remove",
        "recover",
        "cloud add",
        "cloud rename",
        "cloud adopt",
        "cloud drain",
        "cloud list",
        "cloud login",
        "cloud price",
        "cloud remove",
        "cloud replace",
        "cloud retain",
        "cloud test",
        "fsck",
        "scrub",
        "repair",
        "gc",
        "kv create",
        "kv session",
        "kv drop",
        "import",
        "mirror add",
        "mirror list",
        "mirror remove",
        "mirror status",
        "mirror accept",
        "mirror undo",
        "kv containers",
        "kv put",
        "kv append",
        "kv replace",
        "kv get",
        "kv delete",
        "kv list",
        "kv tput",
        "versions diff",
        "versions id",
        "versions list",
        "versions restore",
        "versions show",
        "versions verify",
        "kv clean",
        "kv rebuild",
        "kv forget",
        "kv migrate",
        "relay add",
        "relay code",
        "relay list",
        "relay remove",
        "relay serve",
        "serve s3",
        "serve sftp",
        "serve user add",
        "serve user list",
        "serve user remove",
        "serve webdav",
    }


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['hybrisfs', '--help']\n"
        "from cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "click" in loaded
    assert {"rich", "hybrisfs", "hybrisfs.client", "nacl", "sqlite3", "asyncio", "subprocess"} & set(
        loaded
    ) == set()


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"hybrisfs {VERSION}\n"
    assert f'version = "{VERSION}"' in (REPOSITORY / "pyproject.toml").read_text()


@pytest.mark.parametrize("words", [["no-such-command"], ["mount"], ["status", "--nonsense"], []])
def test_wrong_usage_is_exit_code_2(run: Run, words: list[str]) -> None:
    assert run(*words).exit_code == 2


def test_a_mistyped_command_is_guessed(run: Run) -> None:
    assert "No such command 'statsu'. Did you mean status?" in run("statsu").stderr
    assert "Did you mean umount or mount?" in run("unmount").stderr
    assert "Did you mean versions restore?" in run("restore").stderr
    assert "Did you mean --help?" in run("help").stderr
    assert run("qqq").stderr.endswith("No such command 'qqq'.\n")


class Broken(Program):
    """With commands that have a bug."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        def broken() -> None:
            raise ValueError("what\x1b[31m nobody expected")

        return click.Command(cmd_name, callback=broken)


def test_a_bug_is_one_line_and_a_file(home: Home) -> None:
    result = CliRunner().invoke(Broken(), ["status"])
    assert result.exit_code == 70
    assert result.stderr == (
        "hybrisfs: unexpected ValueError: what\\e[31m nobody expected\n"
        f"The details are in {home.state}/cli.log.\n"
    )
    assert "Traceback" in (home.state / "cli.log").read_text()


def test_a_bug_in_the_daemon_is_told_without_details(photos: FakeVolume, run: Run) -> None:
    photos.failure = ZeroDivisionError("division by zero")
    result = run("status")
    assert result.exit_code == 70
    assert "The details are in the log." in result.stderr


def test_interrupting(photos: FakeVolume, home: Home) -> None:
    photos.pending_files = 1
    waiting = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "sync", "--wait"],
        cwd=REPOSITORY,
        env=home.environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert photos.syncing.wait(60)
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, errors) == (130, "\ninterrupted\n")


def test_a_reader_that_has_enough_is_no_error(served: Daemon, home: Home) -> None:
    command = f"{sys.executable} -m cli.main status --watch --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", command], cwd=REPOSITORY, env=home.environment(), capture_output=True, timeout=60
    )
    assert len(done.stdout) == 10
    assert done.stderr == b""


def test_odd_folder_names_survive(served: Daemon, home: Home, tmp_path: Path) -> None:
    folder = bytes(tmp_path) + b"/caf\xe9 \x1b[31m"
    served.start()
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "mount", "photos", folder],
        cwd=REPOSITORY,
        env={**home.environment(), "LC_ALL": "C"},
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b""
    assert rb"caf\xe9 \e[31m'" in done.stdout
    assert Path(str(folder, "utf-8", "surrogateescape")).is_dir()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("pin", "file"),
        ("unpin a", "file"),
        ("evict", "file"),
        ("log", "file"),
        ("ui", "file"),
        ("versions list", "file"),
        ("versions show", "file"),
        ("versions restore", "file"),
        ("versions id", "file"),
        ("versions diff", "file"),
        ("import", "dir"),
        ("mirror add", "dir"),
        ("mount photos", "dir"),
        ("umount", "dir"),
        ("quickstart", "dir"),
        ("setup --folder", "dir"),
    ],
)
def test_shells_complete_paths(words: str, kind: str) -> None:
    assert completed(f"hybrisfs {words} HybrisFS/no") == [f"{kind},HybrisFS/no"]


def completed(line: str) -> list[str]:
    """What click tells bash when the last word of *line* is to be completed."""
    environment = {
        "_HYBRISFS_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    said = CliRunner(env=environment).invoke(program)
    assert said.stderr == ""
    return [line for line in said.stdout.splitlines() if line]


def completed_by_bash(home: Home, *words: str) -> list[str]:
    """What bash makes of it, when so many words stand on the line as they were typed."""
    script = (
        'eval "$(_HYBRISFS_COMPLETE=bash_source hybrisfs)"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1));'
        '_hybrisfs_completion hybrisfs; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script, "bash", *words],
        env={**home.environment(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.fixture
def named(home: Home) -> None:
    """Volumes of which no daemon runs."""
    for name in ("photos", "phone", "music"):
        folder = home.volume_config(name)
        folder.mkdir(parents=True)
        (folder / "volume.json").touch()


@pytest.mark.parametrize("command", every_command(program), ids=" ".join)
def test_shells_complete_the_names_of_volumes(named: None, command: tuple[str, ...]) -> None:
    found: click.Command = program
    for word in command:
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), word)
        assert inner is not None
        found = inner
    for parameter in found.params:
        if parameter.name != "name" or command in _NEW_NAMES:
            continue
        words = parameter.opts[0] if isinstance(parameter, click.Option) else ""
        assert completed(f"hybrisfs {' '.join(command)} {words} ph") == ["plain,phone", "plain,photos"]


def test_what_is_unmounted_is_a_volume_or_a_folder(named: None) -> None:
    assert completed("hybrisfs umount ph") == ["dir,ph", "plain,phone", "plain,photos"]


def test_bash_completes_the_names_of_volumes(named: None, home: Home) -> None:
    assert completed_by_bash(home, "hybrisfs", "status", "ph") == ["phone", "photos"]


def test_passphrases_that_a_command_reads_get_into_no_core_dump(tmp_path: Path) -> None:
    script = """if True:
        import resource
        import click
        from cli.main import Program, program

        def read(file, **_):
            print(resource.getrlimit(resource.RLIMIT_CORE), open("/proc/self/coredump_filter").read())
            raise click.Abort

        import cli.recovery
        cli.recovery.read_passphrase = read
        program.main(["recover", "--cloud", "file:///nowhere"])
    """
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HYBRISFS_HOME": str(tmp_path)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["(0,", "0)", "00000000"]
