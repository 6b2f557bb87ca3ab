from __future__ import annotations

import hashlib
import itertools
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hybrisfs
from hybrisfs.errors import UsageError
from hybrisfs.recovery.sealed_key import (
    LEAST_CHARACTERS,
    WORDS,
    _word_list,
    check_passphrase,
    new_passphrase,
    normalised,
)


def test_words_come_from_a_list_of_the_size_that_the_strength_is_told_by() -> None:
    words = _word_list()
    assert len(set(words)) == len(words) == 7776
    assert all(word.isascii() and word == word.lower() and word for word in words)


def test_the_list_is_the_one_that_was_published() -> None:
    """With the numbers of the dice it is the file that the EFF offers, byte by byte."""
    dice = map("".join, itertools.product("123456", repeat=5))
    published = "".join(f"{number}\t{word}\n" for number, word in zip(dice, _word_list(), strict=True))
    assert (
        hashlib.sha256(published.encode()).hexdigest()
        == "addd35536511597a02fa0a9ff1e5284677b8883b83e986e43f15a3db996b903e"
    )


@pytest.mark.parametrize("damage", ["few", "swapped", "empty"])
def test_a_list_that_was_changed_is_refused(tmp_path: Path, damage: str) -> None:
    words = _word_list()
    changed = {"few": words[:16] * 486, "swapped": [words[1], words[0], *words[2:]], "empty": []}[damage]
    package = Path(hybrisfs.__file__).parent
    shutil.copytree(package, tmp_path / "hybrisfs", ignore=shutil.ignore_patterns("__pycache__"))
    altered = tmp_path / "hybrisfs" / "recovery" / "eff_large_wordlist.txt"
    altered.write_text("".join(f"{word}\n" for word in changed))
    drawing = subprocess.run(
        [
            sys.executable,
            "-c",
            "from hybrisfs.recovery.sealed_key import new_passphrase; print(new_passphrase().text)",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{package.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (drawing.returncode, drawing.stdout) == (1, "")
    assert "DamagedError: the list of words of passphrases" in drawing.stderr


def test_a_drawn_passphrase_is_words_and_never_the_same() -> None:
    drawn = [new_passphrase() for _ in range(20)]
    assert len({one.text for one in drawn}) == len(drawn)
    words = set(_word_list())
    for one in drawn:
        assert len(one.text.split()) == WORDS
        assert words.issuperset(one.text.split())
        assert one.bits == math.floor(WORDS * math.log2(7776)) == 103
        assert one.text not in repr(one)
        assert check_passphrase(one.text) == one.text


def test_spaces_and_forms_of_letters_make_no_difference() -> None:
    assert normalised("  blue   moon\trises\n") == normalised("blue moon rises")
    assert normalised("cafe\u0301 creme") == normalised("caf\u00e9 creme")
    assert normalised("Blue moon") != normalised("blue moon")


@pytest.mark.parametrize(
    "text", ["", "short", " " * 40, "x" * (LEAST_CHARACTERS - 1), "a       b       c", "x" * 1025]
)
def test_what_is_too_short_or_too_long_is_refused_and_not_told(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_passphrase(text)
    assert not text.strip() or text not in str(refused.value)
