#!/bin/sh
# Make a bare Debian with systemd and an ordinary user, alice, for tests/system/test_fresh_debian.py, as root.
#
# It goes to ${XDG_CACHE_HOME:-~/.cache}/hybrisfs-debian-root, or to the folder that is given as the argument; takes a
# minute and 300 MB, and no time when it is there already. Suite and mirror are those of this machine.

set -eu

root=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/hybrisfs-debian-root}
[ ! -e "$root/complete" ] || exit 0
[ "$(id -u)" -eq 0 ] || {
    echo "debian-root: needs root" >&2
    exit 1
}
command -v debootstrap >/dev/null || apt-get install -q -y --no-install-recommends debootstrap

suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2046 # one file a word
mirror=$(cat $(find /etc/apt -name '*.list' -o -name '*.sources') |
    sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\).*/\2/p' | head -n 1)

rm -rf "$root"
mkdir -p "$root"
debootstrap --variant=minbase \
    --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,fuse3,python3 \
    "$suite" "$root" "$mirror" >"$root.log" 2>&1 || {
    tail -n 20 "$root.log" >&2
    exit 1
}
rm -rf "$root"/var/cache/apt/archives/*.deb "$root.log"
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash alice
# Her systemd runs without a login.
mkdir -p "$root/var/lib/systemd/linger"
touch "$root/var/lib/systemd/linger/alice" "$root/complete"
