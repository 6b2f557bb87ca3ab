"""The record of what is to be remounted."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.environment import SYSTEM, Environment


def test_it_is_empty_at_first(tmp_path: Path) -> None:
    assert WantedMounts(tmp_path, SYSTEM).all() == {}


def test_it_outlives_the_process(tmp_path: Path) -> None:
    odd = WantedMount(Path(os.fsdecode(b"/mnt/\xff 'odd'")), allow_other=True)
    WantedMounts(tmp_path, SYSTEM).add("a", WantedMount(Path("/mnt/a")))
    WantedMounts(tmp_path, SYSTEM).add("b", odd)
    assert WantedMounts(tmp_path, SYSTEM).all() == {"a": WantedMount(Path("/mnt/a")), "b": odd}
    WantedMounts(tmp_path, SYSTEM).remove("a")
    WantedMounts(tmp_path, SYSTEM).remove("never there")
    assert WantedMounts(tmp_path, SYSTEM).all() == {"b": odd}


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]",
        "\0\0\0",
        '{"format": 2, "mounts": {}}',
        '{"format": 1}',
        '{"format": 1, "mounts": {"a": {"directory": "relative", "allow_other": false}}}',
        '{"format": 1, "mounts": {"a": {"directory": "/mnt", "allow_other": 1}}}',
        '{"format": 1, "mounts": {"a": "/mnt"}}',
    ],
)
def test_a_damaged_record_counts_as_empty_and_is_replaced(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mounts.json").write_text(damage)
    wanted = WantedMounts(tmp_path, SYSTEM)
    with caplog.at_level(logging.ERROR):
        assert wanted.all() == {}
    assert "no volume is remounted" in caplog.text
    wanted.add("a", WantedMount(Path("/mnt/a")))
    assert list(wanted.all()) == ["a"]


def test_it_is_replaced_whole_and_durably(tmp_path: Path) -> None:
    wanted = WantedMounts(tmp_path, SYSTEM)
    wanted.add("a", WantedMount(Path("/mnt/a")))

    def fail(_: int) -> None:
        raise OSError("power cut")

    with pytest.raises(OSError, match="power cut"):
        WantedMounts(tmp_path, Environment(fsync=fail)).add("b", WantedMount(Path("/mnt/b")))
    assert list(wanted.all()) == ["a"]
