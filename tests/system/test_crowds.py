"""Many files, many threads, many processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

from tests.system.device import Device
from tests.system.shell import run
from tests.system.trees import snapshot


def test_a_folder_of_20_000_entries(shared_device: Device, folder: Path) -> None:
    count, big = 20_000, folder / "big"
    big.mkdir()
    own = os.open(big, os.O_RDONLY)
    for number in range(count):
        os.close(os.open(f"entry-{number}", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=own))
    os.close(own)
    expected = {f"entry-{number}" for number in range(count)}
    listed = os.listdir(big)  # noqa: PTH208 - that many Path objects help nobody
    assert len(listed) == count
    assert set(listed) == expected
    shared_device.remount()
    assert set(os.listdir(big)) == expected  # noqa: PTH208
    assert (big / "entry-17777").exists()
    assert not (big / "entry-20000").exists()
    run("rm", "-r", big)
    assert list(folder.iterdir()) == []


_WORKER = """
import os, random, sys
folder, name, seed = sys.argv[1:]
choose = random.Random(int(seed))
own = os.path.join(folder, name)
os.mkdir(own)
for number in range(150):
    path = os.path.join(own, f"f{number}")
    data = choose.randbytes(choose.randrange(60_000))
    with open(path, "wb") as file:
        file.write(data)
    with open(path, "rb") as file:
        assert file.read() == data, path
    if number % 3 == 0:
        os.rename(path, os.path.join(folder, "shared", f"{name}-{number}"))
    elif number % 5 == 1:
        os.unlink(path)
    os.listdir(os.path.join(folder, "shared"))
"""


def test_eight_processes_at_once(shared_device: Device, folder: Path) -> None:
    (folder / "shared").mkdir()
    names = [f"worker{number}" for number in range(8)]
    workers = [
        subprocess.Popen([sys.executable, "-c", _WORKER, folder, name, str(number)])
        for number, name in enumerate(names)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0] * len(workers)
    moved = {f"{name}-{number}" for name in names for number in range(0, 150, 3)}
    assert {path.name for path in (folder / "shared").iterdir()} == moved
    kept = {f"f{number}" for number in range(150) if number % 3 != 0 and number % 5 != 1}
    for name in names:
        assert {path.name for path in (folder / name).iterdir()} == kept
    before = snapshot(folder)
    shared_device.forget()
    assert snapshot(folder) == before


def test_twenty_threads_write_one_file_in_stripes(shared_device: Device, folder: Path) -> None:
    path, threads, rounds, stripe = folder / "striped", 20, 40, 5_000  # stripes cross pages and each other's
    path.touch()
    errors: list[OSError] = []

    def write(own: int) -> None:
        choose = random.Random(own)
        try:
            descriptor = os.open(path, os.O_RDWR)
            for turn in range(rounds):
                os.pwrite(descriptor, choose.randbytes(stripe), (turn * threads + own) * stripe)
            os.close(descriptor)
        except OSError as error:
            errors.append(error)

    workers = [threading.Thread(target=write, args=(own,)) for own in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    streams = [random.Random(own) for own in range(threads)]
    expected = b"".join(stream.randbytes(stripe) for _ in range(rounds) for stream in streams)
    assert path.read_bytes() == expected
    shared_device.forget()
    assert path.read_bytes() == expected
