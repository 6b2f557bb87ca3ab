#!/bin/sh
# Renew the lock files: exact versions of all libraries, for all versions of Python and kinds of machine, with the
# SHA-256 of each file that may be installed.
#
#   packaging/lock.sh              after a change in pyproject.toml: what still fits stays as it is
#   packaging/lock.sh --upgrade    the newest versions of everything; --upgrade-package NAME, of one
#
# requirements.lock is what the program uses, build.lock what makes a package of it, dev.lock both and what the tests
# use. Needs the virtual environment .venv, which packaging/test.sh makes, and PyPI. Read the difference before you
# commit it: it is the code that everybody will run.
#
# To install from them say `--no-build-isolation`, with what is in build.lock there: else pip fetches whatever
# is newest to build what comes as source. On x86_64 wsgidav does, which needs no compiler; elsewhere zfec may, too.

set -eu

cd "$(dirname "$0")/.."

lock() {
    file=$1
    shift
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --custom-compile-command packaging/lock.sh --output-file "packaging/$file" "$@" >/dev/null
}

lock requirements.lock "$@" pyproject.toml
lock build.lock "$@" --constraints packaging/requirements.lock --group build
lock dev.lock "$@" --constraints packaging/requirements.lock --constraints packaging/build.lock \
    --group build --extra dev pyproject.toml
