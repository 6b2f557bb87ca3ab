"""Ignored files as programs see them, in a real mount."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.system.deadline import until
from tests.volume.device import Device

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

STATE = "user.hybrisfs.state"


def state(path: Path) -> bytes:
    return os.getxattr(path, STATE)


def test_a_build_folder_and_what_editors_do(device: Device, root: Path) -> None:
    device.volume.ignoring.add(["build/", "*.tmp"])
    build = root / "build"
    (build / "deep").mkdir(parents=True)
    (build / "deep" / "main.o").write_bytes(b"object")
    assert state(build) == state(build / "deep" / "main.o") == b"ignored"
    (root / "folder").mkdir()
    with pytest.raises(OSError, match=os.strerror(errno.ENODATA)):
        state(root / "folder")
    note = root / "note.txt"
    for text in ("one", "two"):
        saved = root / "note.tmp"
        saved.write_text(text)
        assert state(saved) == b"ignored"
        saved.rename(note)
        device.sync()
        assert state(note) == b"durable"
    note.rename(root / "old.tmp")
    device.sync()
    assert state(root / "old.tmp") == b"durable"
    (build / "deep").rename(root / "kept")
    device.sync()
    assert state(root / "kept" / "main.o") == b"durable"
    assert (root / "kept" / "main.o").read_bytes() == b"object"
    assert device.fsck(clouds=True).problems == []


def test_rules_of_a_project(device: Device, root: Path) -> None:
    project = root / "project"
    project.mkdir()
    (project / ".hybrisfsignore").write_text("node_modules/\n*.log\n")
    (project / "node_modules" / "left-pad").mkdir(parents=True)
    (project / "node_modules" / "left-pad" / "index.js").write_text("module.exports = 1\n")
    (project / "run.log").write_text("line\n")
    (project / "index.js").write_text("require('left-pad')\n")
    device.sync()
    until(lambda: device.volume.status(look=False).ignored.files == 4, "what is ignored")
    assert state(project / ".hybrisfsignore") == state(project / "index.js") == b"durable"
    assert state(project / "run.log") == state(project / "node_modules") == b"ignored"
    subprocess.run(["rm", "-r", project], check=True)
    until(lambda: device.volume.status(look=False).ignored.files == 0, "nothing")
    device.sync()
    assert device.fsck().problems == []
