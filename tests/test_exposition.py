"""Figures in the text format of Prometheus."""

from __future__ import annotations

import re

from hybrisfs.api.status import DaemonStatus, Status, UnusableVolume
from hybrisfs.dispersal.traffic import CloudTraffic, Counters
from hybrisfs.exposition import exposition
from tests.facts import status_of

_SAMPLE = re.compile(
    r'hybrisfs_[a-z_]+(\{([a-z]+="([^"\\\n]|\\[\\"n])*")(,[a-z]+="([^"\\\n]|\\[\\"n])*")*\})? -?[0-9.e+]+'
)
VOLUME = status_of(
    name='na"me\n\\',
    mountpoint="/mnt",
    files=3,
    bytes=4096,
    pending_files=1,
    pending_bytes=10,
    conflicts=2,
    cache={"bytes": 5, "budget": 10},
    warnings=["x"],
    clouds=[{"name": "amber\udcff", "state": "down"}],
    devices=[
        {"name": "desk", "this": True, "last_seen": 1.0},
        {"name": "laptop", "suspect": True, "last_seen": 60.0},
    ],
)
BROKEN = UnusableVolume(name="broken", last_error="", missing_mount=None)
COUNTERS = Counters(
    **dict.fromkeys(("put", "get", "list", "delete", "failed", "up", "down", "reads", "writes"), 7),
    read_seconds=0.5,
    write_seconds=1.5,
)
TRAFFIC = {'na"me\n\\': [CloudTraffic(0, "amber", "ok", COUNTERS, [])]}


def lines() -> list[str]:
    facts = Status(DaemonStatus("1.0", 1, 12.5), [VOLUME, BROKEN])
    return exposition(facts, TRAFFIC, 100.0).splitlines()


def test_every_line_is_of_the_format_and_samples_of_a_name_stand_together() -> None:
    current, seen = "", set()
    for line in lines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            assert current not in seen, "samples of one name belong together"
            seen.add(current)
        elif not line.startswith("# TYPE "):
            assert _SAMPLE.fullmatch(line), line
            assert re.split(r"[{ ]", line)[0] == current
    assert {"hybrisfs_cloud_bytes_total", "hybrisfs_pending_bytes", "hybrisfs_usable"} <= seen


def test_counters_are_called_total_and_gauges_are_not() -> None:
    for line in lines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name.endswith("_total") == (kind == "counter")


def test_figures_are_those_of_the_facts() -> None:
    told = "\n".join(lines())
    assert 'hybrisfs_pending_files{volume="na\\"me\\n\\\\"} 1.0' in told
    assert 'cloud="amber?",state="down"} 1.0' in told
    assert 'hybrisfs_device_silent_seconds{volume="na\\"me\\n\\\\",device="laptop"} 40.0' in told
    assert 'hybrisfs_usable{volume="broken"} 0.0' in told
    assert 'kind="put"} 1.5' in told
