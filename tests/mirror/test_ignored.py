"""What ignore rules of the volume match is mirrored like anything else, and stays on this device."""

from __future__ import annotations

from tests.mirror.rig import Mirrored, until


def test_ignored_files_go_both_ways_and_no_further(mirrored: Mirrored) -> None:
    here, volume = mirrored.directory, mirrored.device.volume
    volume.ignoring.add(["build/", "*.log"])
    mirrored.add()
    (here / "build").mkdir()
    (here / "build" / "main.o").write_bytes(b"object")
    (here / "main.c").write_bytes(b"source")
    mirrored.put("run.log", b"lines")
    until(lambda: mirrored.find("build/main.o") and mirrored.find("main.c"), "the files in the volume")
    until(lambda: "run.log" in mirrored.here(), "the file on the disk")
    mirrored.device.sync()
    until(lambda: volume.status(look=False).ignored.files == 3, "what is ignored")
    (here / "build" / "main.o").write_bytes(b"another object")
    until(lambda: mirrored.content("build/main.o") == b"another object", "the change")
    mirrored.device.sync()
    assert volume.status(look=False).ignored.files == 3
