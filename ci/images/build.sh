#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# build.sh: builds the image of STACK, FORMAT (sif, oci), DELIVERY (wheels, spack), LANE and SITE, and writes it to OUTPUT.
# COMMIT is the commit recorded in the image (HEAD). BASE is an image reference instead of the pinned one, or `local` for a
# Debian that base.sh builds. BUILDER=docker|podman|buildah selects the builder for FORMAT=oci. For Spack: BUILDCACHE and MIRROR
# are URLs, SUPPLY is a directory from ci/spack/supply.sh, ENVIRONMENT overrides the environment of SITE and LANE.
set -euo pipefail
cd "$(dirname "$0")/../.."
stack=${STACK:-host} format=${FORMAT:-sif} delivery=${DELIVERY:-wheels} site=${SITE:-}
lane=${LANE:-$(basename "${ENVIRONMENT:-ucx-1.14}")}
work=${WORK:-build/images}

die() {
    printf 'image: %s\n' "$1" >&2
    exit 1
}

case $format in
sif) output=${OUTPUT:-$work/busbar-$stack-$delivery.sif} ;;
oci) output=${OUTPUT:-$work/busbar-$stack-$delivery.tar} ;;
*) die "FORMAT must be sif or oci, got '$format'" ;;
esac
[[ ${BUILDER:-} =~ ^(docker|podman|buildah|)$ ]] || die "BUILDER must be docker, podman or buildah, got '$BUILDER'"
context=$work/context-$stack-$delivery-$format
mkdir -p "$work"
work=$(cd "$work" && pwd)
# Builds share the base, the context directory and the store, so only one runs at a time.
exec 9>"$work/lock"
flock 9
output=$(realpath -m "$output")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
ci/images/context.sh "$stack" "$delivery" "$lane" "$context" "$site"
commit=${COMMIT:-$(git rev-parse HEAD)$([[ -z $(git status --porcelain --untracked-files=no) ]] || echo -dirty)}
arguments=(--build-arg "DELIVERY=$delivery" --build-arg "LANE=$lane" --build-arg "COMMIT=$commit" --build-arg "LOCK=$(<"$context/lock.sha256")")
for name in BUILDCACHE MIRROR; do
    [[ -z ${!name:-} ]] || arguments+=(--build-arg "$name=${!name}")
done
base=${BASE:-}
[[ $base != local ]] || ci/images/base.sh "$work/base.tar"

build_sif() {
    export PATH=$PATH:${APPTAINER_PREFIX:-$PWD/build/apptainer}/bin
    command -v apptainer >/dev/null || die "no apptainer on PATH; ci/lab/install.sh installs one"
    if [[ $base == local ]]; then
        if [[ ! $work/base.stamp -nt $work/base.tar ]]; then
            rm -rf "$work/base.part" "$work/base" # an interrupted build may have left base.part
            mkdir "$work/base.part"
            tar -x -C "$work/base.part" --exclude './dev/*' --exclude '*/partial' -f "$work/base.tar"
            mv "$work/base.part" "$work/base"
            touch "$work/base.stamp"
        fi
        arguments+=(--build-arg BOOT=localimage --build-arg "BASE=$work/base")
    elif [[ -n $base ]]; then
        arguments+=(--build-arg "BASE=$base")
    fi
    if ((EUID == 0)) && ! grep -q '^root:' /etc/subuid; then
        die "apptainer build --fakeroot as root needs a range of user ids; add one: echo root:1000000:65536 | tee -a /etc/subuid /etc/subgid"
    fi
    # zstd needs a kernel of 2017 or later, and decompresses several times faster than gzip.
    (cd "$context" && apptainer --quiet build --force --fakeroot --mksquashfs-args "-comp zstd -Xcompression-level 9" "${arguments[@]}" "$output" apptainer.def)
}

build_oci() {
    local builder=${BUILDER:-} image=localhost/busbar-$stack:$delivery
    if [[ -z $builder ]]; then
        if docker info >/dev/null 2>&1; then builder=docker; else builder=buildah; fi # buildah needs no daemon
    fi
    command -v "$builder" >/dev/null || die "no $builder found; install docker, podman or buildah"
    rm -f "$output"
    "build_by_$builder" "$image"
}

build_by_docker() { # IMAGE
    if [[ $base == local ]]; then
        docker import "$work/base.tar" localhost/busbar-base >/dev/null
        base=localhost/busbar-base
    fi
    docker build --quiet --network host ${base:+--build-arg "BASE=$base"} "${arguments[@]}" --tag "$1" "$context" >/dev/null
    docker save --output "$output" "$1"
}

# Podman and buildah use the same format of store; this build has its own.
store=(--root "$work/oci" --runroot "$work/oci-run" --storage-driver overlay)
build_options=(--quiet --isolation chroot --format oci --timestamp "$SOURCE_DATE_EPOCH")

build_by_podman() { # IMAGE
    in_store podman
    if [[ $base == local ]]; then
        podman "${store[@]}" import --quiet "$work/base.tar" localhost/busbar-base >/dev/null
        base=localhost/busbar-base
    fi
    podman "${store[@]}" build "${build_options[@]}" ${base:+--build-arg "BASE=$base"} "${arguments[@]}" --tag "$1" "$context" >/dev/null
    podman "${store[@]}" save --quiet --format docker-archive --output "$output" "$1" >/dev/null
}

build_by_buildah() { # IMAGE
    in_store buildah
    if [[ $base == local ]]; then
        local container
        container=$(buildah "${store[@]}" from scratch)
        buildah "${store[@]}" add --quiet "$container" "$work/base.tar" / >/dev/null
        buildah "${store[@]}" commit --quiet --timestamp "$SOURCE_DATE_EPOCH" --rm "$container" localhost/busbar-base >/dev/null
        base=localhost/busbar-base
    fi
    buildah "${store[@]}" bud "${build_options[@]}" ${base:+--build-arg "BASE=$base"} "${arguments[@]}" --tag "$1" "$context" >/dev/null
    buildah "${store[@]}" push --quiet "$1" "docker-archive:$output:$1"
}

in_store() { # BUILDER: prepares the store, and empties it at exit
    # An overlay on an overlay, as in the container of a CI job, does not work.
    [[ $(stat --file-system --format %T "$work") != overlayfs ]] || store[5]=vfs
    # shellcheck disable=SC2064 # expand the store now
    trap "$(printf '%q ' "$1" "${store[@]}") rmi --all --force >/dev/null" EXIT
}

"build_$format"
printf '%s\n' "$output"
