#!/bin/sh
# Checks what this repository needs of a machine, before anything is built.
#
# usage: prerequisites.sh build|api|node|training
#
#   build     cargo, a C compiler and Python
#   api       the same, and Go, which builds etcd and the API server, and Prometheus, which tests the alerts
#   node      what build needs, Go, and root, containerd, runc and the CNI plugins for a node that runs pods
#   training  what build needs, and root, Debian's torch (1 GB with what it needs) and network namespaces
#
# What is missing is installed on Debian and its derivatives when run as root. Otherwise the script prints the commands
# to run and exits with 1. It asks for commands rather than packages, so that another vendor's containerd is left unchanged,
# and it never starts, stops or configures a service: the test cluster runs its own containerd.
#
# The list of packages is also in src/prerequisites.rs; a test compares the two.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
tier="${1:-node}"
# The edition and the features that the code uses need this version; rustup installs the one in rust-toolchain.toml.
oldest_rust=1.95
# From this version on, Go downloads the newer version that a module requires.
oldest_go=1.21

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
at_least() { # VERSION OLDEST, both MAJOR.MINOR…
    major=${1%%.*}
    minor=${1#*.}
    minor=${minor%%[!0-9]*}
    [ "$major" -gt "${2%%.*}" ] || { [ "$major" -eq "${2%%.*}" ] && [ "${minor:-0}" -ge "${2#*.}" ]; }
}

need cc gcc
need cc libc6-dev
need python3 python3
if ! has cargo; then
    advise "cargo is missing" \
        "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
elif ! has rustup; then
    rust=$(cargo --version | cut -d ' ' -f 2)
    at_least "$rust" $oldest_rust || advise "cargo $rust is too old, $oldest_rust is needed" \
        "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
fi

if [ "$tier" = api ] || [ "$tier" = node ]; then
    # Outside of any module, so that no go.mod makes Go download another version to answer.
    go=$(cd / && go env GOVERSION 2>/dev/null | sed 's/^go//') || go=""
    if [ -z "$go" ] || ! at_least "$go" $oldest_go; then
        what="Go ${go:+$go is too old, }$oldest_go or newer is needed to build Kubernetes"
        packaged=$(apt-cache policy golang-go 2>/dev/null | sed -n 's/^ *Candidate: //; s/^[0-9]*://; /^[0-9]/p')
        if [ -n "$packaged" ] && at_least "$packaged" $oldest_go; then
            add golang-go
        elif [ -n "$packaged" ]; then
            # shellcheck disable=SC2016
            advise "$what" 'apt-get install -y -t "$(. /etc/os-release; echo $VERSION_CODENAME)-backports" golang-go'
        else
            machine=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
            advise "$what" "curl -sSfL https://go.dev/dl/go1.26.8.linux-$machine.tar.gz | tar -C /usr/local -xz && export PATH=/usr/local/go/bin:\$PATH"
        fi
    fi
fi

if [ "$tier" = api ]; then
    need prometheus prometheus
    need promtool prometheus
fi

if [ "$tier" = node ]; then
    [ "$(id -u)" = 0 ] || advise "the node's namespaces, mounts and containers need root" "sudo -s"
    need containerd containerd
    need ctr containerd
    need runc runc
    need ip iproute2
    need nft nftables
    need iptables iptables
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
fi

if [ "$tier" = training ]; then
    [ "$(id -u)" = 0 ] || advise "a network namespace for each scenario needs root" "sudo -s"
    need unshare util-linux
    need ip iproute2
    # Of Debian's interpreter: another one on the PATH may have a different torch, or none.
    /usr/bin/python3 -c 'import sys, importlib.util; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null ||
        add python3-torch
fi

if [ -n "$packages" ]; then
    install="apt-get install -y --no-install-recommends $packages"
    if ! has apt-get; then
        advise "these packages (Debian's names) are missing" "install $packages"
    elif [ "$(id -u)" != 0 ]; then
        advise "packages are missing" "sudo apt-get update && sudo $install"
    elif [ -z "$advice" ]; then
        echo "installing $packages" >&2
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # The list of packages is a fixed list of plain names.
        # shellcheck disable=SC2086
        $install -qq >/dev/null
    else
        advise "packages are missing" "apt-get update && $install"
    fi
fi

if [ -n "$advice" ]; then
    echo "This machine lacks what the tier '$tier' needs:$advice" >&2
    exit 1
fi
