#!/bin/sh
# Runs a command, for example a build with cargo, and compiles Kubernetes for the test cluster at the same time.
#
# usage: with-kubernetes.sh api|node COMMAND…
#
# The packages go into Go's own build cache, where the test cluster finds them when it links the programs. Nothing is
# compiled if the programs have been built before.
set -eu
tier="$1"
shift
cache="${SWANSONG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/swansong}"
case "$tier" in
api)
    last=kubectl
    packages="go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl"
    ;;
*)
    last=pause
    packages=tool
    ;;
esac

compile() {
    cd "$(dirname "$0")/programs"
    # As src/programs.rs builds them, else Go's cache doesn't match. GOGC: memory for a sixth less work.
    export CGO_ENABLED=0 GOWORK=off GOGC="${GOGC:-200}"
    unset GOFLAGS
    # shellcheck disable=SC2086
    all=$(go list -deps $packages | wc -l)
    # Go may name a package more than once. Without fflush the lines wait for the end where the output is no terminal.
    # shellcheck disable=SC2086
    go list -export -deps -v -f '' $packages 2>&1 | awk -v all="$all" '
        /^go: downloading/ { next }
        / / { print "kubernetes: " $0; fflush(); next }
        !seen[$0]++ && ++compiled % 100 == 0 { print "kubernetes: compiled " compiled " of " all " packages"; fflush() }' >&2
}

if ls "$cache"/kubernetes/*/"$last" >/dev/null 2>&1; then
    exec "$@"
fi
echo "kubernetes: compiling it beside cargo, about ten minutes the first time" >&2
compile &
compiling=$!
trap 'kill $compiling 2>/dev/null || true' EXIT
"$@"
if kill -0 $compiling 2>/dev/null; then
    echo "kubernetes: cargo is done; the rest of Kubernetes is still being compiled" >&2
fi
# The test cluster reports what failed to compile, so the result isn't needed here.
wait $compiling || true
trap - EXIT
