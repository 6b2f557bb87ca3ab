"""`hybrisfs cloud`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybrisfs.daemon.service import Daemon
from hybrisfs.home import Home
from relay.code import RelayCode
from tests.cli.conftest import Run, typed
from tests.daemon.fake import FakeVolume, FakeVolumes


def test_list_and_test(photos: FakeVolume, run: Run) -> None:
    assert run("cloud", "list", "photos").stdout == (
        "NAME   USE     STATE  OBJECTS  DATA    URL\namber  in use  ok     1,200    3.0 MB  file:///amber\n"
        "amber: 41% of what it holds was checked since 2025-10-09\n"
        "This machine checks within 90 days that everything is there: 1,333 requests a month "
        "(hybrisfs volume set photos --check-days DAYS).\n"
    )
    photos.clouds.trouble = "no cloud can\ntake it"
    assert "amber: $'no cloud can\\ntake it'\n" in run("cloud", "list").stdout
    assert json.loads(run("cloud", "list", "--json").stdout)["clouds"][0]["use"] == "draining"
    assert run("cloud", "test", "amber").stdout == "amber works:\n  put  12.3 ms\n"


KEEPS = {
    "keeps": True,
    "days": 30,
    "destructible": False,
    "deletes": False,
    "note": "",
    "tried": 1,
}


def test_what_clouds_keep(photos: FakeVolume, run: Run) -> None:
    photos.clouds.retention = KEEPS
    assert run("cloud", "test", "amber").stdout == (
        "amber works:\n  put  12.3 ms\nkeeps deleted objects: for 30 days\n"
        "this machine could destroy them: no\n"
        "this machine may not delete: what is not needed any more is left to another that may\n"
    )
    assert "KEEPS DELETED" in run("cloud", "list").stdout
    assert json.loads(run("cloud", "list", "--json").stdout)["clouds"][0]["retention"] == KEEPS
    photos.clouds.retention = {**KEEPS, "days": None, "destructible": True, "deletes": True}
    done = run("cloud", "retain", "amber", "8w")
    assert done.stdout == (
        "amber:\nkeeps deleted objects: yes\n"
        "this machine could destroy them: yes, and so could a thief of it\n"
        "note: mind the costs\n"
    )
    run("cloud", "retain", "amber", "off")
    run("cloud", "add", "s3://b", "--name", "b", "--retain", "30d")
    assert photos.clouds.asked == [
        ("retain", "amber", "56"),
        ("retain", "amber", "0"),
        ("add", "s3://b", "b", "30"),
    ]


@pytest.mark.parametrize("keeps, said", [(False, "no"), (None, "unknown")])
def test_nothing_is_claimed_that_no_try_has_proven(
    photos: FakeVolume, run: Run, keeps: bool | None, said: str
) -> None:
    photos.clouds.retention = {**KEEPS, "keeps": keeps}
    assert f"keeps deleted objects: {said}\n" in run("cloud", "test", "amber").stdout


@pytest.mark.parametrize("time", ["", "30", "d", "0d", "-3d", "999999d", "30 days", "٣d"])
def test_a_time_that_is_none(photos: FakeVolume, run: Run, time: str) -> None:
    done = run("cloud", "retain", "amber", "--", time)
    assert done.exit_code == 2
    assert not photos.clouds.asked


def test_what_was_typed_wrongly_is_named(photos: FakeVolume, run: Run) -> None:
    assert "'amber' is not a time: write 30d, 8w, 1y or off" in run("cloud", "retain", "30d", "amber").stderr


def test_a_try_says_how_a_cloud_is_made_to_keep_things(photos: FakeVolume, run: Run) -> None:
    photos.clouds.retention = {**KEEPS, "keeps": False, "deletes": True}
    hint = "hybrisfs cloud retain amber 30d has it keep them, where the service can\n"
    assert run("cloud", "test", "amber").stdout.endswith(hint)
    assert hint not in run("cloud", "retain", "amber", "off").stdout
    photos.clouds.retention = {**KEEPS, "keeps": False, "note": "a folder has no older versions of files"}
    assert hint not in run("cloud", "test", "amber").stdout


def test_adding_and_replacing(photos: FakeVolume, run: Run) -> None:
    assert run("cloud", "add", "file:///x", "--name", "disk").stdout == "photos uses the cloud disk now.\n"
    done = run("cloud", "replace", "amber", "file:///y", "--wait")
    assert done.exit_code == 0
    assert done.stdout == ("photos uses the cloud new now.\nphotos does not need the cloud amber any more.\n")
    assert photos.clouds.asked == [("add", "file:///x", "disk"), ("replace", "amber", "file:///y")]


def test_a_url_is_tried_without_a_volume(served: Daemon, volumes: FakeVolumes, run: Run) -> None:
    volumes.create(Home.below(Path("/")), "zoo", ["file:///z"], 0, 1, make=False)
    assert run("cloud", "test", "file:///new").stdout.startswith("file:///new works:\n")
    assert volumes.tried == ["file:///new"]
    assert run("cloud", "test", "amber").exit_code == 2


def test_another_name(photos: FakeVolume, run: Run) -> None:
    assert run("cloud", "rename", "amber", "nas").stdout == "photos calls it nas now.\n"
    assert photos.clouds.asked == [("rename", "amber", "nas")]


def test_a_folder_is_made_where_a_person_says_so(photos: FakeVolume, run: Run) -> None:
    run("cloud", "add", "file:///x", "--name", "disk", "--make")
    assert photos.clouds.asked == [("add", "file:///x", "disk", "make")]


@pytest.mark.parametrize(
    "command", [["list"], ["test", "amber"], ["add", "file:///x"], ["replace", "amber", "file:///y"]]
)
def test_what_may_be_lost_together_is_said(photos: FakeVolume, run: Run, command: list[str]) -> None:
    assert "Note:" not in run("cloud", *command).stdout
    photos.clouds.together = ["amber and jade are on one disk"]
    assert "Note: amber and jade are on one disk.\n" in run("cloud", *command).stdout


def test_draining_goes_on_in_the_background(photos: FakeVolume, run: Run) -> None:
    photos.clouds.released = False
    done = run("cloud", "drain", "amber")
    assert (done.exit_code, done.stdout) == (
        0,
        "amber is being emptied in the background: hybrisfs status shows how far it is.\n",
    )
    assert run("cloud", "drain", "amber", "--wait", "--timeout", "0").exit_code == 3
    photos.clouds.trouble = "amber is down"
    done = run("cloud", "drain", "amber", "--wait", "--timeout", "0", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout) == {
        "name": "photos",
        "cloud": "amber",
        "done": False,
        "trouble": "amber is down",
    }


def test_a_cloud_that_is_not_there(photos: FakeVolume, run: Run) -> None:
    done = run("cloud", "remove", "birch")
    assert done.exit_code == 2
    assert "no cloud 'birch'" in done.stderr


NAS = "webdavs://nas.example/backup"


def test_secrets_from_a_file(served: Daemon, volumes: FakeVolumes, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text('{"user": "ada", "password": "right"}')
    done = run("cloud", "login", NAS, "--secrets", str(file))
    assert done.stdout == f"{NAS} works:\n  put  12.3 ms\n"
    assert volumes.secrets == {NAS: {"user": "ada", "password": "right"}}

    file.write_text('{"password": "wrong"}')
    refused = run("cloud", "login", NAS, "--secrets", str(file))
    assert (refused.exit_code, "wrong password" in refused.stderr) == (1, True)
    file.write_text('{"password": "wr')
    broken = run("cloud", "login", NAS, "--secrets", str(file))
    assert (broken.exit_code, "wr\n" in broken.output) == (2, False)
    assert "cannot be read: No such file" in run("cloud", "login", NAS, "--secrets", "missing").stderr
    assert volumes.secrets[NAS]["password"] == "right"


def test_without_a_terminal_nobody_is_asked(served: Daemon, run: Run) -> None:
    done = run("cloud", "login", NAS)
    assert (done.exit_code, "give --secrets" in done.stderr) == (2, True)
    done = run("cloud", "login", "file:///disk")
    assert (done.exit_code, "takes no secrets" in done.stderr) == (2, True)
    done = run("cloud", "login", "rclone:drive:folder")
    assert (done.exit_code, "takes no secrets: rclone keeps them" in done.stderr) == (2, True)


def test_secrets_are_asked_for_and_not_shown(served: Daemon, volumes: FakeVolumes, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file")
    done = typed(f"ada\n@{tmp_path / 'key'}\n", "cloud", "login", NAS)
    assert done.exit_code == 0
    assert volumes.secrets[NAS] == {"user": "ada", "password": "from a file"}
    done = typed("\ntyped\n", "cloud", "login", NAS)
    assert volumes.secrets[NAS] == {"password": "typed"}
    assert "typed" not in done.output
    done = typed("\n\n", "cloud", "login", NAS)
    assert (done.exit_code, "nothing was given" in done.output) == (2, True)


CODE = RelayCode("nas.example", 8017, "home", bytes(range(32)), "a" * 32)


def test_a_relay_is_added_by_its_code(
    photos: FakeVolume, volumes: FakeVolumes, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "code").write_text(CODE.encode() + "\n")
    done = run("cloud", "add", "--code", str(tmp_path / "code"), "--name", "nas")
    assert (done.exit_code, done.stdout) == (0, "photos uses the cloud nas now.\n")
    assert volumes.secrets == {CODE.url: {"token": CODE.token}}
    assert photos.secret_looks == 1
    assert CODE.token not in done.output


def test_a_machine_logs_in_to_a_relay_by_its_code(
    photos: FakeVolume, volumes: FakeVolumes, run: Run, tmp_path: Path
) -> None:
    done = typed(CODE.encode() + "\n", "cloud", "login", "--code", "-")
    assert (done.exit_code, volumes.secrets) == (0, {CODE.url: {"token": CODE.token}})
    assert CODE.token not in done.output
    assert CODE.encode() not in done.output


@pytest.mark.parametrize("command", ["add", "login"])
def test_either_a_url_or_a_code_is_given(photos: FakeVolume, run: Run, command: str, tmp_path: Path) -> None:
    for arguments in ([], [NAS, "--code", "-"]):
        done = run("cloud", command, *arguments)
        assert (done.exit_code, "either a URL or --code" in done.stderr) == (2, True)
    (tmp_path / "code").write_text(CODE.encode()[:-1])
    done = run("cloud", command, "--code", str(tmp_path / "code"))
    assert (done.exit_code, "mistyped or incomplete" in done.stderr) == (2, True)
