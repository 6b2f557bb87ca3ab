#!/bin/sh
# Install the object stores that the tests of the drivers run against, and the services for metadata, where they are
# missing, without root: versitygw (S3), fake-gcs-server (GCS) and etcd with Go, azurite (Azure) with npm, ZooKeeper from
# Debian's or Ubuntu's packages, unpacked. The WebDAV server comes with the development dependencies, the SFTP server is
# Debian's openssh-server.
#
# They go to ${XDG_CACHE_HOME:-~/.cache}/hybrisfs-test-servers, or to the folder that is given as the argument.
# Needs Go 1.24, Node 18, npm and Java 11, takes about eight minutes and 600 MB, and no time when all is there already.

set -eu

versitygw=v1.8.0
fake_gcs_server=v1.56.1
etcd=v3.6.8
azurite=3.37.0
zookeeper=packaged-2

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/hybrisfs-test-servers}
mkdir -p "$folder/bin"
folder=$(cd "$folder" && pwd)

need() {
    command -v "$1" >/dev/null || {
        echo "test-servers: $1 is needed to install $2" >&2
        exit 1
    }
}

# What is installed is noted with its version, so that a change of the version above installs the new one.
installed() {
    [ -e "$folder/$1.version" ] && [ "$(cat "$folder/$1.version")" = "$2" ]
}

go_install() {
    installed "$1" "$3" && return
    need go "$1"
    echo "Installing $1 $3"
    # One compiler at a time: two of them need more memory than a small machine has.
    env GOBIN="$folder/bin" GOTOOLCHAIN=local GOFLAGS="-p=1 -buildvcs=false" go install "$2@$3"
    echo "$3" >"$folder/$1.version"
}

# Its go.mod has replace directives, which `go install` refuses: it is built in a module of our own.
etcd_install() {
    installed etcd "$etcd" && return
    need go etcd
    echo "Installing etcd $etcd"
    module=$(mktemp -d)
    (
        cd "$module"
        go mod init test-servers >"$module/log" 2>&1
        export GOTOOLCHAIN=local GOFLAGS="-p=1 -buildvcs=false -mod=mod"
        go get "go.etcd.io/etcd/server/v3@$etcd" >>"$module/log" 2>&1 || { cat "$module/log" >&2; exit 1; }
        CGO_ENABLED=0 go build -trimpath -o "$folder/bin/etcd" go.etcd.io/etcd/server/v3
    )
    rm -rf "$module"
    echo "$etcd" >"$folder/etcd.version"
}

# What the server itself needs of the packages on which Debian's depends: not its consoles, nor Java.
zookeeper_install() {
    installed zookeeper "$zookeeper" && return
    need apt-get zookeeper
    need java zookeeper
    echo "Installing zookeeper"
    packages=$(mktemp -d)
    (
        cd "$packages"
        apt-get download -q libzookeeper-java libcommons-cli-java libdropwizard-metrics-java libjackson2-annotations-java \
            libjackson2-core-java libjackson2-databind-java liblog4j1.2-java libnetty-java libslf4j-java libsnappy-java \
            >log 2>&1 || { cat log >&2; exit 1; }
    )
    rm -rf "$folder/zookeeper"
    for package in "$packages"/*.deb; do
        dpkg -x "$package" "$folder/zookeeper"
    done
    rm -rf "$packages"
    # Of the ways to log, the one that writes to the standard error.
    for way in jcl jdk14 log4j12 nop; do
        rm -f "$folder/zookeeper/usr/share/java/slf4j-$way"*.jar
    done
    printf '#!/bin/sh\nexec java -cp "%s/*" "$@"\n' "$folder/zookeeper/usr/share/java" >"$folder/bin/zookeeper"
    chmod +x "$folder/bin/zookeeper"
    echo "$zookeeper" >"$folder/zookeeper.version"
}

npm_install() {
    installed "$1" "$2" && return
    need node "$1"
    need npm "$1"
    echo "Installing $1 $2"
    npm install --silent --no-audit --no-fund --prefix "$folder" "$1@$2"
    echo "$2" >"$folder/$1.version"
}

go_install versitygw github.com/versity/versitygw/cmd/versitygw "$versitygw"
go_install fake-gcs-server github.com/fsouza/fake-gcs-server "$fake_gcs_server"
etcd_install
zookeeper_install
npm_install azurite "$azurite"
