#!/bin/bash
# Build hybrisfs_VERSION_ARCHITECTURE.deb from this checkout into the folder that is given as the argument, or dist/.
#
# The package holds the program and all libraries that it uses in a virtual environment, /usr/lib/hybrisfs, for the
# Python of the distribution it is built on; the units for systemd, not enabled; completions for shells; man pages;
# the user's documentation; and what a desktop shows: menu entry, its description, icons, the icon in the panel,
# extensions for file managers. Needs python3-venv and dpkg-dev, and PyPI; where zfec comes compiled for no such machine, gcc and
# python3-dev, too.
#
# The same commit, built on the same release of the same distribution, gives the same bytes: the libraries are
# those of packaging/requirements.lock, checked by their hashes, and all times are SOURCE_DATE_EPOCH (seconds since
# 1970), by default that of the last commit.

set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
output=$(realpath -m "${1:-$checkout/dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
prefix=/usr/lib/hybrisfs
python=/usr/bin/python3
umask 022
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$checkout" log -1 --format=%ct)}"
export LC_ALL=C.UTF-8 TZ=UTC PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
export CFLAGS=-g0 # debugging information names the folder that it was compiled in

mkdir "$work/source"
(cd "$checkout" && git ls-files -coz --exclude-standard hybrisfs sync backends cli dashboard gateway relay serving tray pyproject.toml README.md LICENSE | xargs -0 cp --parents -t "$work/source")
cd "$work" # Python looks for modules in the working directory: not in the checkout

mkdir -p "$root$prefix"
"$python" -m venv "$work/builder"
"$python" -m venv --without-pip "$root$prefix"
locks=$checkout/packaging
pip() {
    "$work/builder/bin/python" -m pip --quiet --disable-pip-version-check "$@"
}
pip install --require-hashes --no-deps --requirement "$locks/build.lock"
wheel() {
    pip wheel --no-deps --no-build-isolation --use-pep517 --wheel-dir "$work/wheels" "$@"
}
wheel --require-hashes --requirement "$locks/requirements.lock"
wheel "$work/source"
pip --python "$root$prefix/bin/python3" install --no-index --no-deps --no-compile "$work/wheels"/*.whl
version=$("$root$prefix/bin/python3" -c 'from hybrisfs import VERSION; print(VERSION)')
minor=$("$python" -c 'import sys; print(sys.version_info[1])')
site=$root$prefix/lib/python3.$minor/site-packages

# Programs of libraries are not ours to install; ours must not name the folder that it was built in.
find "$root$prefix/bin" -type f ! -name hybrisfs -delete
find "$root$prefix/bin" -type l ! -name python3 -delete
ln -sfn "$python" "$root$prefix/bin/python3"
rm -rf "$root$prefix/include" "$root$prefix/lib64" "$root$prefix/share"
# Where the name of that folder is long, a shell starts Python, in two more lines.
sed -i -e "1c #!$prefix/bin/python3 -P" -e "/^'''exec' /d" -e "/^' '''\$/d" "$root$prefix/bin/hybrisfs"
cat >"$root$prefix/pyvenv.cfg" <<CONFIGURATION
home = /usr/bin
include-system-site-packages = false
version = $("$python" -c 'import platform; print(platform.python_version())')
CONFIGURATION
# Who installed it, from where, and what: of no use where dpkg removes it, and it names the folder that it was built in.
find "$site" -path '*.dist-info/*' \( -name direct_url.json -o -name INSTALLER -o -name RECORD -o -name REQUESTED \) -delete
find "$site" -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
# Of the descriptions of all services of Amazon's, a hundred megabytes, those that an S3 client and its credentials use.
find "$site/botocore/data" -mindepth 1 -maxdepth 1 -type d \
    ! -name s3 ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -rf {} +
find "$site" -type f -exec chmod 644 {} +

units=$root/usr/lib/systemd/user
mkdir -p "$units" "$root/usr/bin"
env -i HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1 "$root$prefix/bin/python3" - "$units" "$root" <<'PYTHON'
import sys
from pathlib import Path

from hybrisfs.home import Home
from hybrisfs.service_manager import unit_texts

folder, root = sys.argv[1:]
for name, text in unit_texts(Home.from_environment()).items():
    (Path(folder) / name).write_text(text.replace(root, ""))
PYTHON
mkdir -p "$root/usr/lib/systemd/system"
cp "$checkout/packaging/systemd/hybrisfs-relay@.service" "$root/usr/lib/systemd/system/"
# In one process, and in the order of names: what is written depends on what was compiled before.
"$python" -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$site"
ln -s ../lib/hybrisfs/bin/hybrisfs "$root/usr/bin/hybrisfs"

complete() {
    mkdir -p "$root$2"
    env _HYBRISFS_COMPLETE="$1_source" "$root$prefix/bin/python3" -m cli.main >"$root$2/$3"
}
complete bash /usr/share/bash-completion/completions hybrisfs
complete zsh /usr/share/zsh/vendor-completions _hybrisfs
complete fish /usr/share/fish/vendor_completions.d hybrisfs.fish
mkdir -p "$root/usr/share/man/man1"
"$root$prefix/bin/python3" -P "$checkout/packaging/man_pages.py" \
    "$root/usr/share/man/man1" "$version" "$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)"
gzip -9n "$root"/usr/share/man/man1/*
ln -sfn ../../../bin/python3 "$root$prefix/bin/python3" # nothing in it is run here any more

desktop=$checkout/packaging/desktop
icons=$root/usr/share/icons/hicolor/scalable
mkdir -p "$icons/apps" "$icons/emblems" "$root/usr/share/applications"
cp "$desktop/hybrisfs.desktop" "$root/usr/share/applications/"
mkdir -p "$root/usr/share/metainfo"
cp "$desktop"/*.metainfo.xml "$root/usr/share/metainfo/"
mkdir -p "$root/etc/xdg/autostart" "$root/usr/share/kio/servicemenus"
cp "$desktop/hybrisfs-tray.desktop" "$root/etc/xdg/autostart/"
cp "$desktop/hybrisfs-dolphin.desktop" "$root/usr/share/kio/servicemenus/hybrisfs.desktop"
cp "$desktop/hybrisfs.svg" "$icons/apps/"
cp "$desktop"/emblem-*.svg "$icons/emblems/"
for manager in nautilus nemo caja; do
    mkdir -p "$root/usr/share/$manager-python/extensions"
    cp "$desktop/hybrisfs_files.py" "$root/usr/share/$manager-python/extensions/hybrisfs.py"
done

debian=$checkout/packaging/debian
documents=$root/usr/share/doc/hybrisfs
mkdir -p "$documents/docs" "$root/usr/share/lintian/overrides" "$root/DEBIAN"
cp "$debian/copyright" "$documents/copyright"
cp "$checkout/README.md" "$checkout/SECURITY.md" "$documents/"
cp "$checkout"/docs/*.md "$documents/docs/" # not docs/internals and docs/adr, which are for those who change the program
gzip -9n <"$checkout/CHANGELOG.md" >"$documents/changelog.gz"
"$python" "$checkout/packaging/sbom.py" "$version" "$site" "$work/wheels" >"$documents/hybrisfs.cdx.json"
maintainer=$(sed -n 's/^Maintainer: //p' "$debian/control")
gzip -9n >"$documents/changelog.Debian.gz" <<CHANGES
hybrisfs ($version) unstable; urgency=medium

  * Built from upstream; changelog.gz beside this file tells what changed.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
CHANGES
cp "$debian/lintian-overrides" "$root/usr/share/lintian/overrides/hybrisfs"
for script in postinst prerm postrm; do
    install -m 755 "$debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find etc -type f -printf '/%p\n' | sort >DEBIAN/conffiles)
architecture=$(dpkg --print-architecture)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" \
    -e "s/@SIZE@/$(find "$root/etc" "$root/usr" -printf '%y %s\n' | awk '{ n += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print n }')/" \
    -e "s/@PYTHON@/3.$minor/" -e "s/@NEXT_PYTHON@/3.$((minor + 1))/" \
    "$debian/control" >"$root/DEBIAN/control"
(cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)

find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$output"
export DPKG_DEB_COMPRESSOR_TYPE="${DPKG_DEB_COMPRESSOR_TYPE:-xz}" DPKG_DEB_COMPRESSOR_LEVEL="${DPKG_DEB_COMPRESSOR_LEVEL:-1}"
export DPKG_DEB_THREADS_MAX=1 # several compress to other bytes
dpkg-deb --root-owner-group --build "$root" "$output/hybrisfs_${version}_$architecture.deb"
