#!/bin/sh
# Everything that must pass: lint, format, types, tests in several processes. Arguments go to pytest.
#
# Makes the virtual environment .venv in the checkout, with the very libraries that packaging/dev.lock names, when it
# is missing or older than that or pyproject.toml. Tests that need a program which is not installed, root, or
# /dev/fuse are skipped; .ci/run installs it all, and packaging/test-servers.sh the object stores.

set -eu

cd "$(dirname "$0")/.."

# The tests start thousands of processes: compiled again, each of them would take twice as long to start.
unset PYTHONDONTWRITEBYTECODE

# Two processes for each core, because tests wait for half of their time: for disks, clouds, daemons and timers.
# Whatever measures what something costs counts calls and steps instead of seconds.
processes=$((2 * $(nproc)))

# The distribution's Python, where there is one: another may lie where the ordinary user of some tests cannot run it.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

install() {
    .venv/bin/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation --use-pep517 "$@"
}

if ! [ .venv/installed -nt pyproject.toml ] || ! [ .venv/installed -nt packaging/dev.lock ]; then
    echo "Making the virtual environment .venv: the libraries are downloaded and installed, which takes minutes."
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    install --require-hashes --requirement packaging/build.lock
    install --require-hashes --requirement packaging/dev.lock
    install --editable .
    touch .venv/installed
fi

echo "Lint and format"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
echo "Types"
.venv/bin/mypy --strict
echo "Tests; packaging/test.sh tests/cli runs one folder of them"
.venv/bin/pytest --numprocesses "$processes" --dist loadfile --no-loadscope-reorder "$@"
