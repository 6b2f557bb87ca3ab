"""What the page on providers says holds, as far as a machine without accounts can tell."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.errors import AuthError, MissingError
from backends.registry import open_store
from backends.s3 import S3Store
from backends.store import Store
from tests.backends.buckets import allow, client
from tests.backends.conftest import s3_server
from tests.backends.rclone_remotes import needs_rclone
from tests.backends.servers import ORDINARY, FixedCredentials, Server
from tests.docs.tour import Shell, matches, steps
from tests.system.device import REPOSITORY, is_mounted, kill_at_once, processes_with
from tests.system.shell import run

__all__ = ["s3_server"]

_TEXT = (REPOSITORY / "docs" / "providers.md").read_text()


def commands(program: str) -> list[list[str]]:
    """The commands of the blocks that nobody runs, of one program, as lists of words."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line[0] == program]


def policy() -> list[dict[str, list[str]]]:
    """The statements for S3."""
    (found,) = re.findall(r"^```json\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
    statements: list[dict[str, list[str]]] = json.loads(found)["Statement"]
    return statements


@pytest.mark.timeout(300)
def test_what_the_page_shows_is_what_happens(tmp_path: Path) -> None:
    """Also that a volume over three remotes of rclone does without one of them."""
    needs_rclone()
    environment = {
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPOSITORY),
    }
    try:
        with Shell(environment, tmp_path) as shell:
            for step in steps(_TEXT):
                printed = shell.run(step)
                told = f"$ {step.command}\n{printed}\n\nbut the page says\n{step.printed}"
                assert matches(step.printed, printed), told
    finally:
        if is_mounted(tmp_path / "HybrisFS"):
            run("fusermount3", "-u", "-z", tmp_path / "HybrisFS")
        kill_at_once(processes_with("HOME", str(tmp_path)))


def test_all_urls_are_such_of_clouds() -> None:
    urls = [line[-1] for line in commands("hybrisfs") if line[1] == "cloud"]
    assert len(urls) > 10
    for url in urls:
        assert open_store(url.replace("ACCOUNT", "account")).url


@pytest.mark.parametrize("line", [line for line in commands("rclone") if len(line) > 2], ids=" ".join)
def test_rclone_knows_the_kinds_and_options(line: list[str]) -> None:
    _, config, create, name, kind, *options = line
    assert (config, create) == ("config", "create")
    assert f"rclone:{name}:" in _TEXT
    known = subprocess.run(
        [needs_rclone(), "help", "backend", kind], capture_output=True, text=True, check=True
    )
    for option in options:
        assert f"- Config:      {option.partition('=')[0]}\n" in known.stdout


@pytest.fixture
def bucket(s3_server: Server) -> Iterator[tuple[str, Store]]:
    """The URL of a bucket that is there, and a store of a user who may what a policy says."""
    url = s3_server.url()
    S3Store(url, FixedCredentials(s3_server.secrets)).initialise()
    store = S3Store(url, FixedCredentials(ORDINARY))
    yield url, store
    store.close()


def use(store: Store) -> None:
    """Do all that a volume does."""
    store.initialise()
    assert store.put_if_absent("dir/object", b"data")
    store.put("dir/object", b"other")
    assert store.get("dir/object", limit=10) == b"other"
    assert store.get_range("dir/object", 1, 2) == b"th"
    with pytest.raises(MissingError):
        store.get("missing", limit=1)
    assert store.list("").names == ("dir/object",)
    store.delete("dir/object")
    store.delete_many(["dir/object", "dir/other"])
    assert store.list("").names == ()


def test_the_policy_for_s3_is_enough(s3_server: Server, bucket: tuple[str, Store]) -> None:
    of_bucket, of_objects = policy()
    allow(s3_server, bucket[0], of_objects["Action"], of_bucket["Action"])
    use(bucket[1])


def test_the_policy_for_s3_is_the_least(s3_server: Server, bucket: tuple[str, Store]) -> None:
    of_bucket, of_objects = policy()
    for action in [*of_bucket["Action"], *of_objects["Action"]]:
        less_bucket = [one for one in of_bucket["Action"] if one != action] or ["s3:GetBucketTagging"]
        less_objects = [one for one in of_objects["Action"] if one != action]
        allow(s3_server, bucket[0], less_objects, less_bucket)
        with pytest.raises(AuthError):
            use(bucket[1])
        url = bucket[0]
        client(s3_server, url).delete_object(
            Bucket=url.partition("//")[2].partition("?")[0], Key="dir/object"
        )
