"""What a cloud sees: few objects, and nothing of what the user wrote."""

from __future__ import annotations

import os
from pathlib import Path

import zstandard

from tests.system.clouds import objects
from tests.system.device import Device

_MARK = "Zebrafinkenvogelhaus"
"""Stands in names, contents, link targets and attributes; no accident writes it."""


def _everything_a_cloud_sees(cloud: Path) -> bytes:
    """Names and bytes of all objects."""
    return b"\n".join(os.fsencode(path) + b"\n" + path.read_bytes() for path in objects(cloud))


def test_no_name_content_target_or_attribute_is_on_a_cloud(device: Device) -> None:
    top = device.mountpoint / f"{_MARK} folder"
    top.mkdir()
    (top / f"{_MARK}.txt").write_text(f"{_MARK} and more\n" * 50)
    (top / "incompressible").write_bytes(os.urandom(5000) + _MARK.encode() + os.urandom(5000))
    (top / "link").symlink_to(f"/{_MARK}/target")
    os.setxattr(top / "incompressible", "user.secret", _MARK.encode())
    os.setxattr(top / "incompressible", f"user.{_MARK}", b"1")
    device.sync()
    everything = {cloud: _everything_a_cloud_sees(cloud).lower() for cloud in device.clouds}
    assert sum(map(len, everything.values())) > 2 * 10_000  # two clouds hold each byte
    for cloud, seen in everything.items():
        for form in (_MARK.encode(), _MARK.encode("utf-16-le"), _MARK.encode().hex().encode()):
            assert form.lower() not in seen
        assert os.fsencode(device.volume) + b"/" not in seen.replace(os.fsencode(cloud).lower(), b"")


def test_what_lies_on_a_cloud_looks_random(device: Device) -> None:
    """Well-known plaintext, ten megabytes of it, leaves no pattern that a compressor could find."""
    for number in range(10):
        text = f"{number} The quick brown fox jumps over the lazy dog.\n" * 20_000
        (device.mountpoint / f"text{number}").write_text(text)
    (device.mountpoint / "zeros").write_bytes(bytes(3_000_000))
    device.sync()
    for cloud in device.clouds:
        for path in objects(cloud):
            stored = path.read_bytes()
            if len(stored) > 4096:
                assert len(zstandard.compress(stored, 3)) > 0.9 * len(stored), path.name


def test_equal_files_of_two_volumes_cannot_be_matched(device: Device, tmp_path: Path) -> None:
    """A cloud that knows a file cannot tell whether somebody stores it: ids are keyed per volume."""
    other = Device(tmp_path / "other")
    other.root.mkdir()
    with other:
        other.create(3).mount()
        for one in (device, other):
            (one.mountpoint / "known").write_bytes(b"a well-known file\n" * 10_000)
            one.sync()
        names = [
            {path.name for cloud in one.clouds for path in objects(cloud / "packs")}
            for one in (device, other)
        ]
        assert names[0]
        assert names[0].isdisjoint(names[1])


def test_many_small_files_cost_few_objects(device: Device) -> None:
    """At most one pack per cloud and 4 MiB of data, and one metadata segment per hundred files."""
    files, size = 3000, 6000
    before = [len(objects(cloud)) for cloud in device.clouds]
    for number in range(files):
        if number % 100 == 0:
            (device.mountpoint / f"folder{number}").mkdir()
        (device.mountpoint / f"folder{number // 100 * 100}" / f"file{number}").write_bytes(os.urandom(size))
    device.sync()
    allowed = -(-files * size // (4 << 20)) + files / 100
    for cloud, objects_before in zip(device.clouds, before, strict=True):
        assert len(objects(cloud)) - objects_before <= allowed, cloud.name
