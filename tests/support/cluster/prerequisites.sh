#!/bin/sh
# Installs what the test cluster's tier with a node needs: on Debian and its kin when run as root,
# elsewhere it prints the command to run. Quiet and quick when everything is there.
#
# It asks for commands rather than packages, so that another vendor's containerd is left alone, and
# it never starts, stops or configures a service: the test cluster runs a containerd of its own.
#
# The same list is in src/prerequisites.rs, where a test compares the two.
set -eu
PATH="$PATH:/usr/sbin:/sbin"

packages=""
need() { # COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 && return
    case " $packages " in
    *" $2 "*) ;;
    *) packages="${packages:+$packages }$2" ;;
    esac
}
need containerd containerd
need ctr containerd
need runc runc
need ip iproute2
need nft nftables
need iptables iptables
need mount mount
need cc gcc
cni=""
for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
    [ -x "$folder/ptp" ] && [ -x "$folder/host-local" ] && [ -x "$folder/portmap" ] && cni=$folder
done
[ -n "$cni" ] || packages="${packages:+$packages }containernetworking-plugins"
# Linking a static program needs the C library's archive, which gcc alone doesn't bring.
if ! printf 'int main(void){return 0;}' | cc -static -x c -o /dev/null - 2>/dev/null; then
    packages="${packages:+$packages }libc6-dev"
fi

status=0
if [ -n "$packages" ]; then
    install="apt-get install -y --no-install-recommends $packages"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing $packages" >&2
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # The list of packages is ours and made of plain words.
        # shellcheck disable=SC2086
        $install -qq >/dev/null
    elif command -v apt-get >/dev/null 2>&1; then
        echo "the test cluster needs some packages; run: sudo apt-get update && sudo $install" >&2
        status=1
    else
        echo "the test cluster needs these (Debian's names), please install them: $packages" >&2
        status=1
    fi
fi

if ! command -v go >/dev/null 2>&1; then
    echo "the test cluster builds Kubernetes from source; put Go on the PATH, any version from 1.21 on" >&2
    status=1
fi
exit $status
