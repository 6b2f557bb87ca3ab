#!/bin/sh
# Everything that must pass: lint, format, types, tests. Arguments go to pytest.
#
# Makes the virtual environment .venv in the checkout when it is missing or older than pyproject.toml. Tests that
# need a program which is not installed, root, or /dev/fuse are skipped; .ci/run installs it all.

set -eu

cd "$(dirname "$0")/.."

if ! [ .venv/installed -nt pyproject.toml ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
    touch .venv/installed
fi

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy --strict
.venv/bin/pytest "$@"
