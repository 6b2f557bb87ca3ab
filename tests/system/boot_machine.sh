#!/bin/bash
# Boot the Debian in the folder $1 with systemd, in namespaces that the caller has made; this process becomes its PID 1.
# What is mounted here goes with the namespace.

set -euo pipefail

root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t devtmpfs dev "$root/dev"
mkdir -p "$root/dev/pts"
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666
cd "$root"
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --log-target=console --log-level=warning systemd.unit=multi-user.target \
    </dev/null >/run/boot.log 2>&1
