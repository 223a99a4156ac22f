#!/usr/bin/env bash
# Builds manifests/Containerfile with buildah, without a registry, and runs the image.
#
# The two base images have the names that the Containerfile uses and are made of this machine's own files: the first has
# this machine's toolchain, the second the libraries of distroless/cc. The program is built without optimization, since only
# the steps are tested; what was compiled is kept in the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=localhost/swansong:containerfile
cache="${SWANSONG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/swansong}/containerfile"
folder=$(mktemp -d)
mkdir -p "$cache"
buildah() { command buildah --root "$folder/root" --runroot "$folder/run" --storage-driver vfs "$@"; }
clean_up() {
  buildah rm --all >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap clean_up EXIT

# make_base NAME FOLDER [OPTION…]: an image of the files in FOLDER.
make_base() {
  local container
  container=$(buildah from scratch)
  buildah copy --quiet "$container" "$2" / >/dev/null
  buildah config "${@:3}" "$container"
  buildah commit --quiet --rm "$container" "$1" >/dev/null
}

# An image with nothing but mount points: /usr and the toolchain are this machine's.
cargo_home="${CARGO_HOME:-$HOME/.cargo}" rustup_home="${RUSTUP_HOME:-$HOME/.rustup}"
mkdir -p "$folder/rust"/{usr,etc/alternatives,etc/ssl,build,tmp,proc,dev,sys} "$folder/rust/$cargo_home" "$folder/rust/$rustup_home"
ln -s usr/bin usr/lib usr/lib64 usr/sbin "$folder/rust"
make_base docker.io/library/rust:1.95-bookworm "$folder/rust" \
  --env PATH="$cargo_home/bin:/usr/local/bin:/usr/bin:/bin" --env CARGO_HOME="$cargo_home" --env RUSTUP_HOME="$rustup_home" \
  --env CARGO_BUILD_BUILD_DIR=/build --env CARGO_PROFILE_RELEASE_OPT_LEVEL=0 --env CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64

mkdir -p "$folder/distroless"
for library in libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libpthread.so.0 librt.so.1; do
  cp --dereference --parents "$(realpath --no-symlinks "$(cc -print-file-name="$library")")" "$folder/distroless"
done
for loader in /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.*; do
  [[ ! -e $loader ]] || cp --dereference --parents "$loader" "$folder/distroless"
done
make_base gcr.io/distroless/cc-debian12:nonroot "$folder/distroless" --user 65532

buildah bud --isolation chroot --pull-never --file manifests/Containerfile --tag $name \
  --volume /usr:/usr:ro --volume /etc/alternatives:/etc/alternatives:ro --volume /etc/ssl:/etc/ssl:ro \
  --volume "$cargo_home:$cargo_home" --volume "$rustup_home:$rustup_home" --volume "$cache:/build" .

container=$(buildah from --pull-never $name)
user=$(buildah inspect --type image --format '{{.OCIv1.Config.User}}' $name)
[[ $user == 65532:65532 ]] || { echo "the image's user is $user" >&2; exit 1; }
entrypoint=$(buildah inspect --type image --format '{{index .OCIv1.Config.Entrypoint 0}}' $name)
version=$(buildah run --isolation chroot "$container" -- "$entrypoint" --version)
echo "manifests/Containerfile makes an image that runs: $version"
