"""What the tour shows is what happens."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.tour import Shell, Step, matches, steps
from tests.system.device import REPOSITORY, is_mounted, kill_at_once, processes_with
from tests.system.shell import run

_TOUR = REPOSITORY / "docs" / "tour.md"


@pytest.mark.timeout(300)
def test_the_tour_is_true(tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    try:
        with Shell(environment, tmp_path) as shell:
            for step in steps(_TOUR.read_text()):
                printed = shell.run(step)
                told = f"$ {step.command}\n{printed}\n\nbut {_TOUR} says\n{step.printed}"
                assert matches(step.printed, printed), told
    finally:
        if is_mounted(tmp_path / "HybrisFS"):
            run("fusermount3", "-u", "-z", tmp_path / "HybrisFS")
        kill_at_once(processes_with("HOME", str(tmp_path)))


def test_steps_are_commands_with_what_they_print() -> None:
    page = "Text\n```console\n$ a\n1\n2\n$ b\n```\n\n```sh\n$ no\n```\n"
    assert list(steps(page)) == [Step("a", "1\n2"), Step("b", "")]


def test_dots_stand_for_anything_and_nothing_else_does() -> None:
    assert matches("a … c\n…\nend", "a b c\nx\ny\nend")
    assert matches("…", "")
    assert not matches("a … c", "a b d")
    assert not matches("", "surprise")
    assert not matches("a\nb", "a")
