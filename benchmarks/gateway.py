"""`python -m benchmarks.gateway`: what does it cost to back up to several clouds at once, by the S3 gateway?

restic backs up a source tree into an S3 server, and into the gateway of a volume over three of them, of
which any one may fail, in turns; once with the servers on this machine, once behind slow lines. Then it reads
all of it back.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.corpus import source_tree, work_folder
from benchmarks.pages import Page, Section, options_of, publish
from benchmarks.report import significant
from benchmarks.targets import Target
from benchmarks.wan import Distance, Wan, far_clouds
from tests.system.device import Device

_NAMES: Final = ("amber", "birch", "cedar")
_LINES: Final = {
    "on this machine": [Distance(name, 0, 100_000) for name in _NAMES],
    "behind slow lines": [Distance(name, 20, 200) for name in _NAMES],
}
_BARE, _OURS = "one S3 server", "the gateway"
_LIMIT: Final = 1.3

Samples = dict[str, dict[str, list[float]]]
"""Operation -> system -> seconds."""


class Restic:
    """One repository. Its cache is emptied before each operation."""

    def __init__(self, url: str, key: Mapping[str, str], cache: Path) -> None:
        self._cache = cache
        self._url = url
        ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self._environment = {
            **ours,
            "AWS_ACCESS_KEY_ID": key["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
            "RESTIC_PASSWORD": "benchmark",
        }

    def run(self, *words: str) -> float:
        """The seconds that a command takes."""
        shutil.rmtree(self._cache, ignore_errors=True)
        self._cache.mkdir()
        command = ["restic", "-q", "-r", f"s3:{self._url}", "--cache-dir", str(self._cache), *words]
        begun = time.perf_counter()
        subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begun


@contextmanager
def gateway(root: Path, wan: Wan) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The gateway of a volume over the clouds: its URL and access key."""
    with Device(root) as device:
        device.home.mkdir(parents=True)
        for cloud in wan.clouds:
            secrets = root / "secrets.json"
            secrets.write_text(json.dumps(dict(cloud.secrets)))
            device.run("cloud", "login", cloud.url, "--secrets", str(secrets))
        options = [word for cloud in wan.clouds for word in ("--cloud", cloud.url)]
        device.run("volume", "create", device.volume, *options, "-f", "1", "-k", "1")
        key = json.loads(device.run("serve", "s3", device.volume, "--show-keys", "--json"))
        process = device.start("serve", "s3", device.volume, "--listen", "127.0.0.1:0", "--json")
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], key
        finally:
            process.terminate()
            process.communicate()


def measure(root: Path, distances: list[Distance], tree: Path, rounds: int) -> Samples:
    """All operations of both systems, in turns."""
    samples: Samples = {}
    with ExitStack() as stack:
        wan = stack.enter_context(far_clouds(root / "clouds", distances))
        url, key = stack.enter_context(gateway(root / "device", wan))
        first = wan.clouds[0]
        for number in range(rounds):
            systems = {
                _BARE: Restic(f"http://127.0.0.1:{first.port}/bare-{number}", first.secrets, root / "cache"),
                _OURS: Restic(f"{url}/ours-{number}", key, root / "cache"),
            }
            for name in [*systems][:: 1 if number % 2 else -1]:
                restic = systems[name]
                restic.run("init")
                for operation, words in (
                    ("backup", ["backup", str(tree)]),
                    ("again, nothing has changed", ["backup", str(tree)]),
                    ("check --read-data", ["check", "--read-data"]),
                ):
                    samples.setdefault(operation, {}).setdefault(name, []).append(restic.run(*words))
    return samples


def _section(title: str, samples: Samples) -> Section:
    rows = []
    for operation, by_system in samples.items():
        bare, ours = (statistics.median(by_system[name]) for name in (_BARE, _OURS))
        rows.append([operation, significant(bare), significant(ours), significant(ours / bare)])
    return Section(f"restic, servers {title}, s", ["", _BARE, _OURS, "ratio"], rows)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write gateway.json and .md to benchmarks/results."""
    parser = options_of("gateway", __doc__)
    parser.add_argument("--files", type=int, default=11_478, metavar="N", help="of the tree")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds (default 5)")
    parser.add_argument("--only", choices=[*_LINES], help="where the servers are")
    options = parser.parse_args(argv)
    tree = source_tree(options.files)
    page, figures = Page("gateway"), {}
    for title, distances in _LINES.items():
        if options.only not in (None, title):
            continue
        with work_folder("gateway") as root:
            samples = measure(root, distances, tree, options.rounds)
        figures[title] = samples
        page.sections.append(_section(title, samples))
        bare, ours = (statistics.median(samples["backup"][name]) for name in (_BARE, _OURS))
        page.targets.append(Target(f"backup, servers {title}, against {_BARE}", _LIMIT, ours / bare))
    page.notes = [
        f"{options.rounds} rounds, medians. The tree has {options.files:,} files; restic's cache is empty "
        "before each operation. Servers: versitygw, one of them bare, three below the volume (f=1, k=1: each "
        "value is on two clouds). Slow lines have 20 ms round trip and 200 Mbit/s each way.",
    ]
    page.figures = {"rounds": options.rounds, "files": options.files, "samples": figures}
    publish(page, options.results)


if __name__ == "__main__":
    main()
