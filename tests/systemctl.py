"""A systemctl that only writes down what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["Systemctl"]


class Systemctl:
    """The program, first of all in PATH; the user's units are in *folder*, too."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = folder / "bin" / "systemctl"
        self._log, self._fails = folder / "told", folder / "told.fails"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\nshift 2; echo "$*" >>{self._log}\n'
            f'[ "$1" != "$(cat {self._fails} 2>/dev/null)" ] || {{ echo it is broken >&2; exit 1; }}\n'
            "[ \"$1\" != show ] || printf 'ActiveState=active\\nMainPID=77\\n'\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))

    def told(self) -> list[str]:
        """The words after `--user --no-pager`, of each time."""
        return self._log.read_text().splitlines()

    def fail(self, command: str) -> None:
        """This command fails from now on."""
        self._fails.write_text(command)
