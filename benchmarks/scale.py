"""`python -m benchmarks.scale`: how do heads and updates grow with the number of devices?

Heads and updates are made and read by the product's own code, with contents that are made up: each device
has written, and an update names either no other device's or the newest of each. What is only multiplied from
these figures is marked "arithmetic". Files, checkpoints, traffic and memory are not in it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.report import RESULTS, machine, significant, terminal
from sync import OneKey
from sync.checkpoint import Statement
from sync.head import CheckpointId, Head, LogOnClouds, OwnTip, StateClaim, decode_head, encode_head
from sync.identity import DeviceKey
from sync.segment import SegmentId
from sync.update import PREFIX_SIZE, Update, UpdateStamp, decode_signed, encode_signed
from sync.vector import VersionVector

__all__ = ["Figures", "measure"]

_DEVICES: Final = (5, 20, 50)
_CLOCK: Final = 1_000_000  # of each device's newest update
_VOLUME: Final = b"HFS\x02" + bytes(12)
_SEAL: Final = OneKey(bytes(32))
_HASH: Final = bytes([1]) * 32
_VALUE: Final = bytes(120)
_ANNOUNCE: Final = 900  # seconds between two heads of an idle device; the others ask as often
_DAY: Final = 86_400


@dataclass(frozen=True)
class Figures:
    """Of one number of devices: bytes, and CPU seconds for one. The rest is arithmetic."""

    devices: int
    head: int
    read_head: float
    alone: int
    """An update that names no other device's."""
    joining_all: int
    """One that names the newest update of each other device."""
    accept: float
    """To decode the latter and verify its signature."""
    links: int
    heads_read_per_day: int
    """By one idle device, from one cloud, at least."""
    bytes_read_per_day: int


def _cpu(action: Callable[[], object], rounds: int) -> float:
    begun = time.process_time()
    for _ in range(rounds):
        action()
    return (time.process_time() - begun) / rounds


def measure(devices: int, rounds: int) -> Figures:
    """All figures of a volume of so many devices."""
    keys = [DeviceKey.from_seed(number.to_bytes(32, "big")) for number in range(1, devices + 1)]
    key, *others = keys
    vector = VersionVector({one.device_id: _CLOCK for one in keys})
    head = Head(
        _VOLUME,
        key.device_id,
        _CLOCK,
        time.time_ns(),
        vector,
        (OwnTip(_CLOCK, _HASH),),
        LogOnClouds(1000, SegmentId(_CLOCK, _HASH[:8]), _CLOCK),
        stated=Statement(vector, bytes(32), bytes(64)),
        checkpoint=CheckpointId(bytes(32), bytes(32)),
        state=StateClaim(bytes(32), bytes(32)),
    )
    sealed = encode_head(head, key, _SEAL, bytes(24))
    stamps = sorted(UpdateStamp(one.device_id, _CLOCK, _HASH[:PREFIX_SIZE]) for one in others)

    def update(deps: tuple[UpdateStamp, ...]) -> bytes:
        writes = [(bytes(17), _VALUE)]
        clock = _CLOCK + 1
        return encode_signed(
            Update(_VOLUME, key.device_id, clock, _CLOCK, _HASH, deps, _HASH, time.time_ns(), writes),
            key,
        )

    joining_all = update(tuple(stamps))
    asked = (devices - 1) * _DAY // _ANNOUNCE
    return Figures(
        devices,
        len(sealed),
        _cpu(lambda: decode_head(sealed, _VOLUME, key.public, _SEAL), rounds),
        len(update(())),
        len(joining_all),
        _cpu(lambda: decode_signed(joining_all).header.verify(key.public), rounds),
        devices * (devices - 1) // 2,
        asked,
        asked * len(sealed),
    )


_MEASURED: Final = (
    ("head, bytes", "head"),
    ("to open and verify a head, CPU s", "read_head"),
    ("update that names no other, bytes", "alone"),
    ("update that names all others, bytes", "joining_all"),
    ("to decode and verify the latter, CPU s", "accept"),
)
_ARITHMETIC: Final = (
    ("links when all are linked", "links"),
    ("heads that an idle device reads per day and cloud", "heads_read_per_day"),
    ("bytes of these", "bytes_read_per_day"),
)


def _markdown(found: list[Figures], rounds: int) -> str:
    facts = machine()
    lines = [f"| | | {' | '.join(f'{one.devices} devices' for one in found)} |"]
    lines.append(f"| --- | --- | {' | '.join('---:' for _ in found)} |")
    for kind, rows in (("measured", _MEASURED), ("arithmetic", _ARITHMETIC)):
        for label, name in rows:
            values = " | ".join(significant(getattr(one, name)) for one in found)
            lines.append(f"| {label} | {kind} | {values} |")
    said = (
        f"Means of {rounds} rounds, {facts['date']}, {facts['cpus']} cores, load {facts['load_average']}, "
        f"Linux {facts['kernel']}, Python {facts['python']}. "
        f"Arithmetic: at least one head of each other device every {_ANNOUNCE} s, as is the default."
    )
    return "\n".join([*lines, "", said, ""])


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write scale.json and .md to benchmarks/results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, metavar="N")
    options = parser.parse_args(argv)
    found = [measure(devices, options.rounds) for devices in _DEVICES]
    text = _markdown(found, options.rounds)
    terminal().print(text, markup=False)
    RESULTS.mkdir(exist_ok=True)
    facts = {"machine": machine(), "rounds": options.rounds, "figures": [asdict(one) for one in found]}
    (RESULTS / "scale.json").write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / "scale.md").write_text(text)


if __name__ == "__main__":
    main()
