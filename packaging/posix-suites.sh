#!/bin/sh
# Install the public test suites of POSIX filesystems that tests/system/test_posix_suites.py runs, where they are
# missing, with Rust's cargo: pjdfstest (system calls and their errors) and fsx (one file, random operations).
#
# They go to ${XDG_CACHE_HOME:-~/.cache}/hybrisfs-posix-suites, or to the folder that is given as the argument.
# Needs Rust 1.85, Debian's libacl1-dev and a C linker, takes about ten minutes on two cores and 30 MB, and no time
# when all is there already.

set -eu

pjdfstest=0.2.2
fsx=0.3.2

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/hybrisfs-posix-suites}
mkdir -p "$folder/bin"
folder=$(cd "$folder" && pwd)

# What is installed is noted with its version, so that a change of the version above installs the new one.
installed() {
    [ -e "$folder/$1.version" ] && [ "$(cat "$folder/$1.version")" = "$2" ]
}

install() {
    installed "$1" "$2" && return
    PATH=$PATH:$HOME/.cargo/bin # where rustup puts it
    command -v cargo >/dev/null || {
        echo "posix-suites: cargo is needed to install $1" >&2
        exit 1
    }
    echo "Installing $1 $2"
    # Building them takes far longer than they run.
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off
    cargo install --quiet --locked --force --no-track --root "$folder" --version "=$2" "$1"
    echo "$2" >"$folder/$1.version"
}

install pjdfstest "$pjdfstest"
install fsx "$fsx"
