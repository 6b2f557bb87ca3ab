"""hybrisfs kv against a daemon whose volume has a key-value store over clouds in memory."""

from __future__ import annotations

import itertools
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import program
from hybrisfs.api.key_value import Keys, KvListRequest, KvTputRequest, Write
from hybrisfs.client import Client
from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from hybrisfs.kv.metadata import Change
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.seal import new_store_id
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolumes
from tests.daemon.stored import Stored
from tests.kv.rig import CONTAINER, KEY, Rig

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def rig(served: Daemon, volumes: FakeVolumes, tmp_path: Path) -> Iterator[Rig]:
    served.start()
    with Rig(tmp_path) as rig:
        volumes.opened["photos"].key_values = Stored(rig)
        yield rig


def test_put_and_get_files(rig: Rig, run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"\x00value\xff")
    done = run("kv", "put", "photos", f"{CONTAINER}/a/b", str(source))
    assert (done.exit_code, done.stdout) == (0, f"Stored {CONTAINER}/a/b, 7 bytes, version 1 (tag 1-1).\n")
    assert rig.get("a/b") == b"\x00value\xff"
    target.write_bytes(b"something longer than that")
    assert run("kv", "get", "photos", f"{CONTAINER}/a/b", str(target)).exit_code == 0
    assert target.read_bytes() == b"\x00value\xff"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_standard_input_and_output(rig: Rig, home: Home) -> None:
    put = CliRunner().invoke(
        program, ["kv", "put", "photos", f"{CONTAINER}/key", "--json"], input=b"\x00\xff"
    )
    assert json.loads(put.stdout) == {"size": 2, "version": 1, "tag": "1-1"}
    got = CliRunner().invoke(program, ["kv", "get", "photos", f"{CONTAINER}/key"])
    assert (got.exit_code, got.stdout_bytes) == (0, b"\x00\xff")
    assert not [path for path in home.runtime.iterdir() if path.is_dir()]


def test_list_transaction_and_delete(rig: Rig, run: Run, tmp_path: Path) -> None:
    rig.put("old", b"1")
    value = tmp_path / "value"
    value.write_bytes(b"22")
    words = ["--put", f"{CONTAINER}/x/1", str(value), "--put", f"{CONTAINER}/x/2", str(value)]
    done = run("kv", "tput", "photos", *words, "--delete", f"{CONTAINER}/old")
    assert (done.exit_code, done.stdout) == (0, "Wrote 3 keys.\n")
    facts = json.loads(run("kv", "list", "photos", f"{CONTAINER}/x", "--json").stdout)
    assert [(one["key"], one["size"]) for one in facts["keys"]] == [("x/1", 2), ("x/2", 2)]
    assert [line.split()[0] for line in run("kv", "list", "photos", CONTAINER).stdout.splitlines()] == [
        "KEY",
        "x/1",
        "x/2",
    ]
    assert run("kv", "delete", "photos", f"{CONTAINER}/x/1").exit_code == 0
    gone = run("kv", "delete", "photos", f"{CONTAINER}/x/1")
    assert gone.exit_code == 1
    assert "no key" in gone.stderr
    missing = run("kv", "get", "photos", f"{CONTAINER}/x/1")
    assert missing.exit_code == 1
    assert "there is no key 'x/1'" in missing.stderr


def test_writes_take_place_only_if_their_condition_holds(rig: Rig, run: Run, tmp_path: Path) -> None:
    source, address = tmp_path / "source", f"{CONTAINER}/key"
    source.write_bytes(b"mine")

    def put(*condition: str) -> tuple[int, str]:
        done = run("kv", "put", "photos", address, str(source), *condition)
        return done.exit_code, done.stderr

    assert put("--if-match", "1-1") == (
        6,
        f"hybrisfs: nothing was written: {address} has no value, not the one with tag 1-1\n",
    )
    assert put("--if-absent")[0] == 0
    refused = f"hybrisfs: nothing was written: {address} has version 1 (tag 1-1, 4 bytes), not none\n"
    assert put("--if-absent") == put("--if-version", "0") == (6, refused)
    assert put("--if-version", "1") == (0, "")
    assert put("--if-version", "1")[0] == 6
    tag = json.loads(run("kv", "list", "photos", CONTAINER, "--json").stdout)["keys"][0]["tag"]
    assert run("kv", "delete", "photos", address, "--if-match", "1-1").exit_code == 6
    bad = run("kv", "tput", "photos", "--put", f"{CONTAINER}/b", str(source), "--if-match", address, "1-1")
    assert (bad.exit_code, rig.store.list(CONTAINER)[0].key) == (6, "key")
    words = [
        "--put",
        f"{CONTAINER}/b",
        str(source),
        "--if-match",
        address,
        tag,
        "--if-absent",
        f"{CONTAINER}/b",
    ]
    assert run("kv", "tput", "photos", *words).exit_code == 0
    assert run("kv", "tput", "photos", *words).exit_code == 6
    assert run("kv", "tput", "photos", "--delete", address, "--if-version", address, "2").exit_code == 0
    assert [one.key for one in rig.store.list(CONTAINER)] == ["b"]
    assert put("--if-match", "nonsense")[0] == put("--if-absent", "--if-version", "3")[0] == 2


def test_values_are_changed_in_parts(rig: Rig, run: Run, tmp_path: Path) -> None:
    part, address = tmp_path / "part", f"{CONTAINER}/log"
    part.write_bytes(b"abc")
    assert run("kv", "replace", "photos", address, "0", str(part)).exit_code == 1
    assert run("kv", "append", "photos", address, str(part)).exit_code == 0
    done = run("kv", "append", "photos", address, str(part), "--json")
    assert json.loads(done.stdout)["size"] == 6
    part.write_bytes(b"XY")
    assert run("kv", "replace", "photos", address, "1", str(part)).exit_code == 0
    assert rig.get("log") == b"aXYabc"
    assert run("kv", "replace", "photos", address, "5", str(part)).exit_code == 0
    assert rig.get("log") == b"aXYabXY"
    beyond = run("kv", "replace", "photos", address, "8", str(part))
    assert (beyond.exit_code, "the value has 7 bytes" in beyond.stderr) == (2, True)


def test_a_client_reads_what_it_has_written(
    served: Daemon, volumes: FakeVolumes, run: Run, tmp_path: Path
) -> None:
    served.start()
    with Rig(tmp_path, cache_bytes=1000) as rig:
        volumes.opened["photos"].key_values = Stored(rig)
        mine = rig.store.put(CONTAINER, "key", b"mine")
        theirs = rig.store.put(CONTAINER, "key", bytes(2000))  # which the cache has no room for
        words = ["kv", "get", "photos", f"{CONTAINER}/key", str(tmp_path / "got")]
        assert run(*words, "--at-least", mine.tag).exit_code == 0
        assert (tmp_path / "got").read_bytes() == b"mine"
        assert run(*words, "--at-least", theirs.tag).exit_code == 0
        assert (tmp_path / "got").read_bytes() == bytes(2000)
        assert run(*words, "--at-least", "soon").exit_code == 2


def test_long_lists_come_in_pages(rig: Rig, run: Run) -> None:
    place = rig.store.metadata.container(CONTAINER)
    keys = [f"{number:04}" for number in range(1203)]
    rig.store.metadata.update(
        [Change((place, key.encode()), KeyMetadata(1, 1, 1, 30, 1, (0,), (bytes(16),))) for key in keys]
    )
    facts = json.loads(run("kv", "list", "photos", CONTAINER, "--json").stdout)
    assert [one["key"] for one in facts["keys"]] == keys


@pytest.fixture
def move_token(rig: Rig, tmp_path: Path) -> Callable[[Client], None]:
    """There are 1,200 keys with long names, and a token behind them. Each call moves it to the other end."""
    before, behind = (f"{letter}{'-' * 900}" for letter in "az")
    place = rig.store.metadata.container(CONTAINER)
    middle = [f"m{number:04}{'-' * 900}" for number in range(1200)]
    rig.store.metadata.update(
        [Change((place, key.encode()), KeyMetadata(1, 1, 1, 30, 1, (0,), (bytes(16),))) for key in middle]
    )
    rig.put(behind, b"token")
    value = tmp_path / "token"
    value.write_bytes(b"token")
    ways = itertools.cycle([(behind, before), (before, behind)])

    def move(client: Client) -> None:
        source, target = next(ways)
        client.call(KvTputRequest("photos", [Write(CONTAINER, source), Write(CONTAINER, target, str(value))]))

    return move


def test_all_parts_of_a_list_are_of_one_moment(move_token: Callable[[Client], None]) -> None:
    """Each part is larger than what the socket takes, so that others are not read when the first arrives."""
    with Client.connect() as client, Client.connect() as other:
        for _ in range(2):
            parts: list[Keys] = []

            def take(part: Keys, parts: list[Keys] = parts) -> None:
                parts.append(part)
                move_token(other)

            told = client.call(KvListRequest("photos", CONTAINER), take)
            assert [len(part.keys) for part in parts] == [500, 500, 201]
            assert told.count == 1201


def test_lists_never_show_half_of_a_transaction(move_token: Callable[[Client], None], run: Run) -> None:
    over = threading.Event()

    def move() -> None:
        with Client.connect() as client:
            while not over.is_set():
                move_token(client)

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        try:
            lists = [json.loads(run("kv", "list", "photos", CONTAINER, "--json").stdout) for _ in range(10)]
        finally:
            over.set()
        moving.result()
    assert [len(one["keys"]) for one in lists] == [1201] * 10


def test_containers(rig: Rig, run: Run) -> None:
    assert run("kv", "create", "photos", "new").stdout == "Made the container new, for this machine alone.\n"
    assert run("kv", "create", "photos", "new").exit_code == 1
    assert json.loads(run("kv", "containers", "photos", "--json").stdout)["containers"] == [CONTAINER, "new"]
    assert run("kv", "drop", "photos", "new").exit_code == 0
    rig.put("key", b"")
    assert "not empty" in run("kv", "drop", "photos", CONTAINER).stderr
    assert run("kv", "get", "nothing", "a/b").exit_code == 4


def test_people_read_which_clouds_have_a_container_and_programs_what_the_log_has(
    rig: Rig, volumes: FakeVolumes, run: Run
) -> None:
    place = "clouds:powerstore/0,1,2,3/1,1"
    volumes.opened["photos"].key_values = Stored(rig, place)
    table = run("kv", "containers", "photos").stdout.splitlines()
    assert [line.split(maxsplit=1) for line in table] == [
        ["CONTAINER", "METADATA"],
        [CONTAINER, "clouds (powerstore, 4 clouds, 1 may fail or lie)"],
    ]
    answer = json.loads(run("kv", "containers", "photos", "--json").stdout)
    assert answer["places"] == [{"metadata": place, "containers": [CONTAINER], "trouble": ""}]


@pytest.mark.parametrize("words", [("photos", CONTAINER), (f"photos/{CONTAINER}",)])
def test_a_container_is_moved(rig: Rig, run: Run, words: tuple[str, ...]) -> None:
    done = run("kv", "migrate", *words, "--metadata", "etcd://db")
    assert (done.exit_code, done.stdout) == (0, f"Moved the container {CONTAINER}: 3 keys copied.\n")
    assert json.loads(run("kv", "migrate", *words, "--metadata", "device", "--json").stdout)["keys"] == 3


@pytest.mark.parametrize(
    "words",
    [
        ("migrate", "photos", "box"),
        ("migrate", "photos", "--metadata", "device"),
        ("put", "photos", "no-slash"),
        ("get", "photos", "/key"),
        ("tput", "photos"),
        ("tput", "photos", "--put", f"{CONTAINER}/a", "-", "--put", f"{CONTAINER}/b", "-"),
        ("get", "photos", f"{CONTAINER}/a", "--max-age", "-1"),
    ],
)
def test_wrong_usage(rig: Rig, run: Run, words: tuple[str, ...]) -> None:
    assert run("kv", *words).exit_code == 2


def test_files_that_cannot_be_used(rig: Rig, run: Run, tmp_path: Path) -> None:
    address = f"{CONTAINER}/key"
    assert "No such file" in run("kv", "put", "photos", address, str(tmp_path / "none")).stderr
    assert "directory" in run("kv", "put", "photos", address, str(tmp_path)).stderr
    rig.put("key", b"value")
    assert run("kv", "get", "photos", address, str(tmp_path / "none" / "file")).exit_code == 1
    twice = run("kv", "tput", "photos", "--delete", address, "--delete", address)
    assert (twice.exit_code, "twice" in twice.stderr) == (2, True)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert "too large" in run("kv", "put", "photos", address, str(large)).stderr
    assert rig.get("key") == b"value"


def test_weaker_reads(rig: Rig, run: Run) -> None:
    rig.put("key", b"value")
    for option in (("--max-age", "60"), ("--max-versions", "0")):
        assert run("kv", "get", "photos", f"{CONTAINER}/key", *option).stdout == "value"


def test_values_that_no_key_names_are_shown_and_deleted(rig: Rig, run: Run, volumes: FakeVolumes) -> None:
    rig.put("key", b"value")
    mine, former = rig.store.metadata.store_id, new_store_id(KEY)
    for store in (mine, former, b"o" * 16):
        rig.cluster.stores[1].objects[f"kv/{store.hex()}/{'ab' * 16}"] = b"x"
    before = rig.objects()
    looked = run("kv", "clean", "photos", "--dry-run")
    assert (looked.exit_code, rig.objects()) == (0, before)
    assert looked.stdout == (
        "Nothing was changed.\n"
        "  that no key names: 1\n"
        "  of stores that this machine had before: 1\n"
        "  of other machines, or of unknown ones (left alone): 1\n"
    )
    none = {"packs": 0, "bytes": 0}
    volumes.opened["photos"].collector.facts = {
        **dict.fromkeys(("empty", "sparse", "young", "due"), none),
        "unnamed": dict.fromkeys(("orphans", "strays", "leftovers", "young"), 0),
        "waiting_for": [],
        "trouble": None,
    }
    assert run("gc", "--dry-run").stdout.splitlines()[-2:] == [
        "  of the key-value store, named by no key: 1 object (hybrisfs kv clean)",
        "  of key-value stores that this machine had: 1 object (hybrisfs kv clean --former)",
    ]
    assert run("kv", "clean", "photos").stdout.startswith("Deleted 1 object.\n")
    facts = json.loads(run("kv", "clean", "photos", "--former", "--json").stdout)
    assert facts == {
        "name": "photos", "unnamed": 0, "former": 1, "of_others": 1, "deleted": 1, "failed": []
    }  # fmt: skip
    assert rig.get("key") == b"value"
    rig.cluster.behave("down", 2)
    failed = run("kv", "clean", "photos")
    assert (failed.exit_code, "  not on c2: it does not list its objects\n" in failed.stdout) == (1, True)


def test_a_rebuild_says_what_it_has_brought_back(rig: Rig, run: Run) -> None:
    done = run("kv", "rebuild", "photos")
    assert (done.exit_code, done.stdout) == (
        1,
        "Set aside: /state/aside. Remove it when all is well.\nTaken over: 3 keys; damaged: 1.\n",
    )


@pytest.mark.parametrize(
    "command",
    ["put", "get", "delete", "list", "tput", "create", "drop", "containers", "clean", "rebuild"],
)
def test_help_has_an_example(run: Run, command: str) -> None:
    assert "hybrisfs kv " in run("kv", command, "--help").stdout.partition("Example")[2]


@pytest.mark.parametrize("value", [b"\x00\xff", b"title \x1b]0;x\x07", b"\x7fELF"])
def test_what_is_no_text_does_not_get_to_a_terminal(rig: Rig, home: Home, value: bytes) -> None:
    rig.put("binary", value)
    refused, shown = on_a_screen(home, "kv", "get", "photos", f"{CONTAINER}/binary")
    assert shown == b""
    assert refused.returncode == 2 and "the value is not plain text" in refused.stderr


def test_plain_text_gets_to_a_terminal(rig: Rig, home: Home) -> None:
    rig.put("text", "plain, späte\tZeile\n".encode())
    done, shown = on_a_screen(home, "kv", "get", "photos", f"{CONTAINER}/text")
    assert (done.returncode, shown) == (0, "plain, späte\tZeile\r\n".encode())


def on_a_screen(home: Home, *words: str) -> tuple[subprocess.CompletedProcess[str], bytes]:
    """Run a command line whose output goes to a terminal; how it ended, and what is to be seen there."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words],
            cwd=REPOSITORY,
            env=home.environment(),
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        try:
            return done, os.read(ours, 1 << 16)
        except BlockingIOError:
            return done, b""
    finally:
        os.close(ours)
        os.close(theirs)


def test_messages_name_what_a_newcomer_has_typed(rig: Rig, run: Run, tmp_path: Path) -> None:
    wrong = run("kv", "get", "photos", "bx/key")
    assert wrong.exit_code == 1
    assert "there is no container 'bx'" in wrong.stderr
    assert f"There are: {CONTAINER}." in wrong.stderr
    nowhere = run("kv", "get", "photos", f"{CONTAINER}/key", str(tmp_path / "nowhere" / "file"))
    assert f"{tmp_path / 'nowhere'}: No such file or directory" in nowhere.stderr
    large = CliRunner().invoke(
        program, ["kv", "put", "photos", f"{CONTAINER}/key"], input=bytes((64 << 20) + 1)
    )
    assert large.exit_code == 2
    assert "standard input is too large: a value has at most 67,108,864 bytes" in large.stderr
    rig.cluster.behave("down")
    source = tmp_path / "source"
    source.write_bytes(b"value")
    away = run("kv", "put", "photos", f"{CONTAINER}/key", str(source))
    assert away.exit_code == 1
    assert f"the value of {CONTAINER}/key was not stored" in away.stderr
