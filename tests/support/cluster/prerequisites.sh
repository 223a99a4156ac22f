#!/bin/sh
# Checks what this repository needs of a machine, before anything is built.
#
# usage: prerequisites.sh build|api|node|test|training|containerfile [TARGET]
#
#   build     cargo, a C compiler and Python
#   api       the same, and Go, which builds etcd and the API server, and Prometheus, which tests the alerts
#   node      what build needs, Go, and root, containerd, runc and the CNI plugins for a node that runs pods
#   test      what api needs, and git, curl, rustfmt and clippy
#   training  what build needs, and root, Debian's torch (1 GB with what it needs), busybox and network namespaces
#   containerfile  what build needs, and root and buildah
#
# What is missing is installed on Debian and its derivatives when run as root. Otherwise the script prints the commands
# to run and exits with 1. It asks for commands rather than packages, so that another vendor's containerd is left unchanged,
# and it never starts, stops or configures a service: the test cluster runs its own containerd. TARGET is what make was
# asked for, for the commands that are printed.
#
# The list of packages is also in src/prerequisites.rs; a test compares the two.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
tier="${1:-node}"
target="${2:-demo}"
# The edition and the features that the code uses need this version; rustup installs the one in rust-toolchain.toml.
oldest_rust=1.95
# From this version on, Go downloads the newer version that a module requires.
oldest_go=1.21
# The version that programs/go.mod requires.
wanted_go=1.26
# Where Go's own instructions install it; tests have another place.
go_home="${SWANSONG_GO_HOME:-/usr/local/go}"
# What the first build leaves behind: Go's cache, target/ and the programs.
first_build_gb=8

packages=""
advice=""
has() { command -v "$1" >/dev/null 2>&1; }
add() { # PACKAGE
    case " $packages " in
    *" $1 "*) ;;
    *) packages="${packages:+$packages }$1" ;;
    esac
}
need() { # COMMAND PACKAGE
    has "$1" || add "$2"
}
advise() { # WHAT COMMAND
    advice="$advice
  $1; run:
    $2"
}
need_root() { # WHY
    [ "$(id -u)" = 0 ] || advise "$1" "sudo env \"PATH=\$PATH\" make $target"
}
at_least() { # VERSION OLDEST, both MAJOR.MINOR…
    major=${1%%.*}
    minor=${1#*.}
    minor=${minor%%[!0-9]*}
    [ "$major" -gt "${2%%.*}" ] || { [ "$major" -eq "${2%%.*}" ] && [ "${minor:-0}" -ge "${2#*.}" ]; }
}

check_rust() {
    install="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
    if ! has cargo; then
        # A shell that was opened before the installation doesn't have it on its PATH.
        if [ -x "${HOME:-}/.cargo/bin/cargo" ]; then install=". \"\$HOME/.cargo/env\""; fi
        advise "cargo is missing" "$install"
    elif ! has rustup || [ -n "${RUSTUP_TOOLCHAIN:-}" ]; then
        # Without rustup, or with another version named, rust-toolchain.toml has no effect.
        rust=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || rust=""
        if [ -z "$rust" ] || ! at_least "$rust" $oldest_rust; then
            if has rustup; then install="unset RUSTUP_TOOLCHAIN"; fi
            advise "cargo ${rust:-of $RUSTUP_TOOLCHAIN} is too old or doesn't run, $oldest_rust is needed" "$install"
        fi
    fi
}

check_lints() {
    need git git
    need curl curl
    if has cargo && ! has rustup; then
        for tool in cargo-fmt cargo-clippy; do
            has $tool || advise "$tool is missing, which \`make lint\` needs" \
                "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
        done
    fi
}

# The newest golang-go that apt has, with the release to take it from: VERSION RELEASE.
packaged_go() {
    apt-cache madison golang-go 2>/dev/null | sed -n 's/^[^|]*| *\([0-9]*:\)\{0,1\}\([0-9][^ ]*\) *|[^ ]* *[^ ]* \([^ /]*\).*/\2 \3/p' |
        while read -r version from; do
            if at_least "$version" $oldest_go; then echo "$version $from" && break; fi
        done
}

check_go() {
    if ! has go && [ -x "$go_home/bin/go" ]; then
        advise "Go is installed but not on the PATH" "export PATH=\"\$PATH:$go_home/bin\""
        return
    fi
    # Outside of any module, so that no go.mod makes Go download another version to answer.
    go=$(cd / && go env GOVERSION 2>/dev/null | sed 's/^go//') || go=""
    if [ -n "$go" ] && at_least "$go" $oldest_go; then
        if ! at_least "$go" $wanted_go && [ "$(cd / && go env GOTOOLCHAIN 2>/dev/null)" = local ]; then
            advise "Go $go may not download Go $wanted_go" "export GOTOOLCHAIN=auto"
        fi
        return
    fi
    newer=$(packaged_go)
    if [ -n "$newer" ]; then
        case "$newer" in
        *-backports) add "golang-go/${newer#* }" ;;
        *) add golang-go ;;
        esac
    else
        machine=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
        advise "Go ${go:+$go is too old, }$oldest_go or newer is needed to build Kubernetes" \
            "curl -sSfL https://go.dev/dl/go1.26.8.linux-$machine.tar.gz | tar -C /usr/local -xz && export PATH=/usr/local/go/bin:\$PATH"
    fi
}

check_prometheus() {
    need prometheus prometheus
    need promtool prometheus
}

check_node() {
    need_root "the node's namespaces, mounts and containers need root"
    if [ "$(id -u)" = 0 ]; then
        # Root of a container without privileges can't make a node. Better to know before the build than after it.
        if has unshare && ! unshare --mount --net --pid --uts --ipc --fork mount -t proc proc /proc 2>/dev/null; then
            advise "this machine refuses new namespaces and mounts, as containers without privileges do" \
                "docker run --privileged …, or use a virtual machine"
        fi
    fi
    need containerd containerd
    need ctr containerd
    need runc runc
    need ip iproute2
    need nft nftables
    need iptables iptables
    need ipset ipset
    need mount mount
    cni=""
    for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
        [ -x "$folder/ptp" ] && [ -x "$folder/host-local" ] && [ -x "$folder/portmap" ] &&
            [ -x "$folder/loopback" ] && cni=$folder
    done
    [ -n "$cni" ] || add containernetworking-plugins
    # Linking a static program needs the C library's archive, which gcc alone doesn't install.
    if has cc && ! printf 'int main(void){return 0;}' | cc -static -x c -o /dev/null - 2>/dev/null; then
        add libc6-dev
    fi
}

check_training() {
    need_root "a network namespace for each scenario needs root"
    need unshare util-linux
    need ip iproute2
    need busybox busybox
    # Of Debian's interpreter: another one on the PATH may have a different torch, or none.
    /usr/bin/python3 -c 'import sys, importlib.util; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null ||
        add python3-torch
}

# Warns before a first build for which the disk may be too small.
check_disk() {
    cache="${SWANSONG_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/swansong}"
    if ! has df || ls "$cache"/kubernetes/*/kubectl >/dev/null 2>&1; then return; fi
    free=$(df -Pk . 2>/dev/null | sed -n '2s/^.* \([0-9][0-9]*\)  *[0-9]*% .*$/\1/p')
    if [ -n "$free" ] && [ "$free" -lt $((first_build_gb * 1024 * 1024)) ]; then
        echo "warning: $((free / 1024 / 1024)) GB are free here, and the first build needs about $first_build_gb GB" >&2
    fi
}

need cc gcc
need cc libc6-dev
need python3 python3
check_rust
case "$tier" in
api) check_go && check_prometheus && check_disk ;;
test) check_lints && check_go && check_prometheus && check_disk ;;
node) check_go && check_node && check_disk ;;
training) check_training ;;
containerfile) need_root "buildah's mounts need root" && need buildah buildah ;;
esac

if [ -n "$packages" ]; then
    # Other installations, for example at the first boot of a machine, are waited for.
    install="apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 $packages"
    if ! has apt-get; then
        advise "these packages (Debian's names) are missing" "install $packages"
    elif [ "$(id -u)" != 0 ]; then
        advise "packages are missing" "sudo apt-get update && sudo $install"
    elif [ -z "$advice" ]; then
        echo "installing $packages" >&2
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >&2
        # The list of packages is a fixed list of plain names.
        # shellcheck disable=SC2086
        $install -q >&2
    else
        advise "packages are missing" "apt-get update && $install"
    fi
fi

if [ -n "$advice" ]; then
    echo "This machine lacks what the tier '$tier' needs:$advice" >&2
    exit 1
fi
