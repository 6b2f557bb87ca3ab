"""The commands of a page run as they stand there, one after the other, in the home of a new user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.system.device import REPOSITORY, kill_at_once, processes_with
from tests.system.shell import tool

_PAGE: Final = REPOSITORY / "docs" / "commands.md"
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

FIRST: Final = """
hybrisfs volume create home --make --cloud a=file://$HOME/mnt/a --cloud b=file://$HOME/mnt/b \
    --cloud c=file://$HOME/mnt/c --cloud d=file://$HOME/mnt/d
hybrisfs mount home ~/HybrisFS
cd ~/HybrisFS && mkdir -p Documents/bills Music Videos && touch Documents/gone Videos/long
echo one > notes.txt
mkdir ~/Projects ~/Pictures
hybrisfs sync --wait
echo two > notes.txt && rm Documents/gone
hybrisfs sync --wait
hybrisfs label add urgent notes.txt
for file in FILE OWNER A B dark.json; do echo $file > ~/$file; done
"""
"""What there is before the first command of the page."""

BEFORE: Final = {
    "hybrisfs volume create photos": "for disk in a b c d e disk box; do mkdir -p ~/mnt/$disk; done",
    "hybrisfs cloud list": """
        hybrisfs mount photos ~/Photos
        for name in hy-2 old-disk stolen-disk nas; do
            hybrisfs cloud add file://$HOME/mnt/$name --make --name $name --volume photos
        done
        """,
    "hybrisfs cloud adopt disk": "rm -r ~/mnt/disk/photos && mkdir ~/mnt/disk/photos",
    "hybrisfs kv put home locks/backup": "hybrisfs kv create home locks --metadata device || true",
    "hybrisfs kv create home locks --metadata clouds": """
        hybrisfs kv delete home locks/backup
        hybrisfs kv drop home locks
        """,
}
"""What has happened before a command that begins so."""

INSTEAD: Final = {
    "--at 2h": "--at $(date --date '1 minute' +%FT%H:%M)",
    "--at 3d": "--at $(date --date '1 minute' +%FT%H:%M)",
    "getfattr -n user.hybrisfs.state FILE": "getfattr -n user.hybrisfs.state ~/HybrisFS/notes.txt",
    "getfattr -n user.hybrisfs.where FILE": "getfattr -n user.hybrisfs.where ~/HybrisFS/notes.txt",
    "getfattr -n user.hybrisfs.labels FILE": "getfattr -n user.hybrisfs.labels ~/HybrisFS/notes.txt",
    "file:///mnt/": "file://$HOME/mnt/",
    "sftp://me@box.example/folder": "file://$HOME/mnt/box/folder",
    "hybrisfs cloud list": "hybrisfs cloud list photos",
    "hybrisfs cloud price nas": "hybrisfs cloud price a",
    "hybrisfs cloud price s3": "hybrisfs cloud price b",
    "hybrisfs volume delete pictures": "hybrisfs volume delete pictures --confirm pictures",
    **{
        f"hybrisfs cloud {what} ": f"hybrisfs cloud {what} --volume photos "
        for what in ("add", "rename", "drain", "remove", "replace", "adopt")
    },
}
"""What stands for what only this home has."""

ELSEWHERE: Final = {
    "hybrisfs volume rebuild": "needs a damaged database: tests/volume/test_rebuild.py",
    "hybrisfs volume leave": "needs another machine: tests/system/test_leaving.py",
    "hybrisfs device invite": "needs two machines: tests/system/test_pairing.py",
    "hybrisfs device join": "needs two machines",
    "hybrisfs device remove": "needs two machines",
    "hybrisfs conflicts merge": "needs a conflict: tests/volume/test_merging.py",
    "hybrisfs conflicts keep": "needs a conflict",
    "hybrisfs recover ": "needs a machine that has nothing: tests/system/test_recovery.py",
    "hybrisfs recovery remove": "needs the name of a kit",
    "hybrisfs kv put home notes/now FILE --if-match": "needs the tag of a value: tests/cli/test_kv.py",
    "hybrisfs kv tput home --put bank": "needs tags",
    "hybrisfs kv get home settings/theme --tag": "needs a tag",
    "hybrisfs kv create home bank": "needs an etcd: tests/system/test_key_value_histories.py",
    "hybrisfs kv create home notes --metadata": "needs a ZooKeeper: tests/kv/test_zookeeper.py",
    "hybrisfs kv create home plans": "needs an etcd",
    "hybrisfs cloud login etcd": "needs an etcd",
    "hybrisfs kv migrate": "needs an etcd",
    "hybrisfs kv forget": "needs an etcd",
    "hybrisfs kv rebuild": "needs a damaged database: tests/kv/test_rebuild.py",
    "hybrisfs serve webdav": "serves until Ctrl-C: tests/serving",
    "hybrisfs serve sftp": "serves until Ctrl-C: tests/serving",
    "hybrisfs serve s3": "serves until Ctrl-C: tests/gateway",
    "hybrisfs relay serve": "serves until Ctrl-C: tests/relay",
    "hybrisfs service": "needs a session of systemd: tests/system/test_fresh_debian.py",
}
"""Commands that cannot run here, and why."""


def commands() -> Iterator[str]:
    for block in _BLOCK.findall(_PAGE.read_text()):
        yield from block.replace("\\\n", "").splitlines()


@pytest.mark.timeout(600)
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    tool("getfattr")
    environment = {
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
    }

    def shell(script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        return "" if done.returncode == 0 else f"{script}\n{done.stdout}exit code {done.returncode}\n"

    failed = []
    try:
        failed.append(shell(FIRST))
        for command in commands():
            if any(command.startswith(one) for one in ELSEWHERE):
                continue
            for beginning, script in BEFORE.items():
                if command.startswith(beginning):
                    failed.append(shell(script))
            for word, other in INSTEAD.items():
                command = command.replace(word, other)
            failed.append(shell(command))
    finally:
        for volume in ("home", "photos", "pictures"):
            shell(f"hybrisfs umount {volume}")
        kill_at_once(processes_with("HOME", str(tmp_path)))
    if any(failed):
        pytest.fail("\n".join(filter(None, failed)))


def test_what_is_said_of_commands_is_said_of_those_on_the_page() -> None:
    page = "\n".join(commands())
    for beginning in (*BEFORE, *ELSEWHERE):
        assert f"\n{beginning}" in f"\n{page}", beginning
    for word in INSTEAD:
        assert word in page, word
