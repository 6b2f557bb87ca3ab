"""Which directories the kernel knows."""

from __future__ import annotations

from hybrisfs.mount.answers import KnownDirectories
from hybrisfs.state.schema import ROOT_INO


def test_a_directory_is_known_until_all_that_was_told_is_forgotten() -> None:
    known = KnownDirectories()
    known.told(7)
    known.told(7)
    known.told(7, echo=True)
    assert not known.forgotten(7, 2)  # read after the kernel was told once more
    assert 7 in known
    assert known.forgotten(7, 1)
    assert 7 not in known


def test_what_only_echoes_have_seen_is_not_known() -> None:
    known = KnownDirectories()
    known.told(7, echo=True)
    assert 7 not in known
    known.told(7)
    assert 7 in known
    known.forgotten(7, 2)
    assert 7 not in known


def test_the_root_is_always_known() -> None:
    known = KnownDirectories()
    known.told(ROOT_INO)
    known.forgotten(ROOT_INO, 1)
    assert ROOT_INO in known
