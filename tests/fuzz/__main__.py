"""`python -m tests.fuzz TARGET|all [--runs N] [--seed N] [--file FILE]`: see `tests.fuzz`."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutate import mutations

_LONGEST = 1 << 16
_PACKAGES = ("sync", "hybrisfs", "backends")


def main() -> int:
    """The exit status: 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="?", default="all")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", type=Path, help="an input to try, and no other")
    parser.add_argument("--list", action="store_true", help="the names of the targets")
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    guided = options.file is None and importlib.util.find_spec("atheris") is not None
    if options.corpus is not None:
        return _guided(options.target, options.runs, options.seed, options.corpus)
    targets = importlib.import_module("tests.fuzz.targets").TARGETS
    if options.list:
        print("\n".join(targets))
        return 0
    if options.target != "all" and options.target not in targets:
        parser.error(f"there is no target {options.target!r}: see --list")
    if options.file is not None:
        targets[options.target].accepts(options.file.read_bytes())
        return 0
    names = list(targets) if options.target == "all" else [options.target]
    run = _in_a_process_of_its_own if guided else _blindly
    return max(run(name, options.runs, options.seed) for name in names)


def _blindly(name: str, runs: int, seed: int) -> int:
    target = importlib.import_module("tests.fuzz.targets").TARGETS[name]
    valid = 0
    for data in mutations([*target.seeds, *target.nonsense], runs, Random(f"{name} {seed}")):
        try:
            valid += target.accepts(data)
        except Exception as error:  # noqa: BLE001  # which is what is looked for
            path = Path(tempfile.gettempdir()) / f"fuzz-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{name}: {error!r}, by {path}")
            return 1
    print(f"{name}: {runs} inputs, {valid} of them valid", flush=True)
    return 0


def _in_a_process_of_its_own(name: str, runs: int, seed: int) -> int:
    """Atheris ends the process when it is done."""
    print(f"{name}:", flush=True)
    arguments = [sys.executable, "-m", "tests.fuzz", name, "--runs", str(runs), "--seed", str(seed)]
    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
        return min(1, subprocess.run([*arguments, "--corpus", corpus], check=False).returncode)


def _guided(name: str, runs: int, seed: int, corpus: Path) -> int:
    """Let Atheris choose the inputs, by what they reach in the packages that it instruments."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=list(_PACKAGES)):
        target = importlib.import_module("tests.fuzz.targets").TARGETS[name]
    for number, data in enumerate((*target.seeds, *target.nonsense)):
        (corpus / str(number)).write_bytes(data)
    prefix = f"-artifact_prefix={tempfile.gettempdir()}/fuzz-"
    arguments = [f"-runs={runs}", f"-seed={seed}", f"-max_len={_LONGEST}", "-verbosity=0", prefix]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], target.accepts)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
