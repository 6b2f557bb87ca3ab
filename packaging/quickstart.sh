#!/bin/sh
# Install HybrisFS from this checkout for the current user, and set up a first folder with it.
#
# Installs fuse3 and python3-venv with apt-get where they are missing (as root or with sudo), makes a
# virtual environment of its own below ~/.local/share/hybrisfs with the very libraries that packaging/requirements.lock
# names, links the command into ~/.local/bin, and runs `hybrisfs quickstart`, but for the option --only-install.
# Running it again upgrades to the state of the checkout.

set -eu

checkout=$(cd "$(dirname "$0")/.." && pwd)
venv=${XDG_DATA_HOME:-$HOME/.local/share}/hybrisfs/venv
bin=$HOME/.local/bin

fail() {
    echo "quickstart: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "needs root to run: $*"
    fi
}

quickstart=yes
case "$*" in
"") ;;
--only-install) quickstart= ;;
*) fail "the only option is --only-install: make no volume" ;;
esac

missing=
command -v fusermount3 >/dev/null || missing="$missing fuse3"
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
if [ "$(uname -m)" != x86_64 ]; then # zfec comes compiled for no other
    command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
    [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
        missing="$missing python3-dev"
fi
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || fail "please install:$missing"
    echo "Installing$missing"
    as_root apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

# fusermount3 cannot unmount without it; a bare container may lack it.
[ -e /etc/mtab ] || as_root ln -s /proc/self/mounts /etc/mtab

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "needs Python 3.11 or newer; this is $(python3 --version)"
[ -e /dev/fuse ] || fail "there is no /dev/fuse: load the kernel module (modprobe fuse); a container needs" \
    "--device /dev/fuse --cap-add SYS_ADMIN"

echo "Installing HybrisFS and its libraries into $venv, which takes a minute or more"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
rm -rf "$checkout/build" # setuptools would install what an earlier state left there
install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation --use-pep517 "$@"
}
install --require-hashes --requirement "$checkout/packaging/build.lock"
install --require-hashes --requirement "$checkout/packaging/requirements.lock"
install --upgrade "$checkout"

mkdir -p "$bin"
ln -sf "$venv/bin/hybrisfs" "$bin/hybrisfs"

# A daemon of an earlier state of the checkout would go on running.
"$venv/bin/hybrisfs" daemon --stop >/dev/null
if [ -n "$quickstart" ]; then
    "$venv/bin/hybrisfs" quickstart
    echo
fi
"$venv/bin/hybrisfs" status

case ":$PATH:" in
*":$bin:"*) ;;
*) printf '\nThe command is %s; to call it as hybrisfs, run:\n  export PATH="$HOME/.local/bin:$PATH"\n' "$bin/hybrisfs" ;;
esac
