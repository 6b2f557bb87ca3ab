"""Users and their passwords."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from hybrisfs.client import HybrisError, UsageError
from serving.users import Guard, Users


def test_a_password_is_kept_as_a_slow_hash_only(tmp_path: Path) -> None:
    users = Users(tmp_path / "serve" / "vol.json")
    password = users.add("phone")
    path = tmp_path / "serve" / "vol.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert password not in path.read_text()
    assert json.loads(path.read_text())["users"][0]["hash"].startswith("$argon2id$v=19$m=65536,")
    assert len(password) == 29
    assert users.add("tv") != password
    assert [one.name for one in users.all()] == ["phone", "tv"]


def test_names(tmp_path: Path) -> None:
    users = Users(tmp_path / "serve" / "vol.json")
    for name in ("", "a:b", "a b", "-x", "ü", "x" * 65, "a\n"):
        with pytest.raises(UsageError):
            users.add(name)
    users.add("a")
    with pytest.raises(UsageError):
        users.add("a")
    with pytest.raises(UsageError):
        users.remove("b")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 2, "users": []}', '{"version": 1, "users": [{"name": "a"}]}']
)
def test_a_damaged_file(tmp_path: Path, content: str) -> None:
    users = Users(tmp_path / "serve" / "vol.json")
    users.add("phone")
    (tmp_path / "serve" / "vol.json").write_text(content)
    with pytest.raises(HybrisError, match="is damaged"):
        users.all()


def test_tries_are_counted_for_an_address_and_forgotten_later(tmp_path: Path) -> None:
    users = Users(tmp_path / "serve" / "vol.json")
    password = users.add("phone")
    now = 0.0
    guard = Guard(users, tries=2, within=60.0, now=lambda: now)
    assert not guard.admits("one", "phone", "wrong")
    assert not guard.admits("one", "nobody", password)
    assert not guard.has_tries("one")
    assert not guard.admits("one", "phone", password)
    assert guard.admits("other", "phone", password)
    assert guard.is_known("phone", password)
    assert not guard.is_known("phone", password + "x")
    now = 61.0
    assert guard.has_tries("one")


def test_tries_at_the_same_time_are_counted(tmp_path: Path) -> None:
    users = Users(tmp_path / "serve" / "vol.json")
    users.add("phone")
    guard = Guard(users, tries=3)
    answers: list[bool] = []
    tries = [
        threading.Thread(
            target=lambda number=number: answers.append(guard.admits("one", "phone", f"w{number}"))
        )
        for number in range(8)
    ]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    assert answers == [False] * 8
    assert not guard.has_tries("one")
    assert len(guard._failures["one"]) <= 4  # two are computed at a time


def test_a_user_that_is_removed_or_replaced_is_unknown(tmp_path: Path) -> None:
    users = Users(tmp_path / "serve" / "vol.json")
    password = users.add("phone")
    guard = Guard(users)
    assert guard.admits("one", "phone", password)
    users.remove("phone")
    assert not guard.is_known("phone", password)
    other = users.add("phone")
    assert not guard.is_known("phone", password)
    assert guard.admits("one", "phone", other)
