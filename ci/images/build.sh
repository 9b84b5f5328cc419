#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# build.sh: builds the image that STACK, FORMAT (sif, oci), DELIVERY (wheels, spack), LANE and SITE describe, into OUTPUT.
# COMMIT is what the image says it was built from (HEAD). BASE is an image reference instead of the pinned one, or `local`: a Debian that base.sh makes here. BUILDER=docker|buildah
# chooses among the two for FORMAT=oci. BUILDCACHE, MIRROR and GPU_APT go to Spack.
set -euo pipefail
cd "$(dirname "$0")/../.."
stack=${STACK:-host} format=${FORMAT:-sif} delivery=${DELIVERY:-wheels} lane=${LANE:-ucx-1.14} site=${SITE:-}
work=${WORK:-build/images}

die() {
    printf 'image: %s\n' "$1" >&2
    exit 1
}

case $format in
sif) output=${OUTPUT:-$work/busbar-$stack-$delivery.sif} ;;
oci) output=${OUTPUT:-$work/busbar-$stack-$delivery.tar} ;;
*) die "FORMAT is sif or oci, not '$format'" ;;
esac
context=$work/context-$stack-$delivery-$format
mkdir -p "$work"
work=$(cd "$work" && pwd)
output=$(realpath -m "$output")
ci/images/context.sh "$stack" "$delivery" "$lane" "$context" "$site"
commit=${COMMIT:-$(git rev-parse HEAD)$([[ -z $(git status --porcelain --untracked-files=no) ]] || echo -dirty)}
arguments=(--build-arg "DELIVERY=$delivery" --build-arg "LANE=$lane" --build-arg "COMMIT=$commit" --build-arg "LOCK=$(<"$context/lock.sha256")")
for name in BUILDCACHE MIRROR GPU_APT; do
    [[ -z ${!name:-} ]] || arguments+=(--build-arg "$name=${!name}")
done
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
base=${BASE:-}
[[ $base != local ]] || ci/images/base.sh "$work/base.tar"

build_sif() {
    export PATH=$PATH:${APPTAINER_PREFIX:-$PWD/build/apptainer}/bin
    command -v apptainer >/dev/null || die "no apptainer on PATH; ci/lab/install.sh installs one"
    if [[ $base == local ]]; then
        if [[ ! $work/base.stamp -nt $work/base.tar ]]; then
            rm -rf "$work/base.part" "$work/base" # also what an interrupted build left
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
    # zstd needs a kernel from 2017 or newer, and unpacks several times faster than gzip.
    (cd "$context" && apptainer --quiet build --force --fakeroot --mksquashfs-args "-comp zstd -Xcompression-level 3" "${arguments[@]}" "$output" apptainer.def)
}

build_oci() {
    local builder=${BUILDER:-} image=localhost/busbar-$stack:$delivery
    if [[ -z $builder ]]; then
        if docker info >/dev/null 2>&1; then builder=docker; else builder=buildah; fi # no daemon answers: buildah needs none
    fi
    command -v "$builder" >/dev/null || die "no $builder found; install docker or buildah"
    rm -f "$output"
    if [[ $builder == docker ]]; then
        if [[ $base == local ]]; then
            docker import --quiet "$work/base.tar" localhost/busbar-base >/dev/null
            base=localhost/busbar-base
        fi
        docker build --quiet ${base:+--build-arg "BASE=$base"} "${arguments[@]}" --tag "$image" "$context" >/dev/null
        docker save --output "$output" "$image"
    else
        # An overlay on an overlay, as in a CI job's own container, does not work.
        local driver=overlay
        [[ $(stat --file-system --format %T "$work") != overlayfs ]] || driver=vfs
        local store=(buildah --root "$work/buildah" --runroot "$work/buildah-run" --storage-driver "$driver")
        if [[ $base == local ]]; then
            local container
            container=$("${store[@]}" from scratch)
            "${store[@]}" add --quiet "$container" "$work/base.tar" / >/dev/null
            "${store[@]}" commit --quiet "$container" localhost/busbar-base >/dev/null
            "${store[@]}" rm "$container" >/dev/null
            base=localhost/busbar-base
        fi
        "${store[@]}" bud --quiet --isolation chroot --format docker --timestamp "$SOURCE_DATE_EPOCH" ${base:+--build-arg "BASE=$base"} "${arguments[@]}" --tag "$image" "$context" >/dev/null
        "${store[@]}" push --quiet "$image" "docker-archive:$output:$image"
        "${store[@]}" rmi --all --force >/dev/null
    fi
}

"build_$format"
printf '%s\n' "$output"
