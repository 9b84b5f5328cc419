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
base=${BASE:-}
[[ $base != local ]] || ci/images/base.sh "$work/base.tar"
if [[ $base == local ]]; then
    arguments+=(--build-arg BASE_NAME=localhost/busbar-base --build-arg "BASE_DIGEST=sha256:$(sha256sum <"$work/base.tar" | cut -d' ' -f1)")
elif [[ -n $base ]]; then
    arguments+=(--build-arg "BASE_NAME=${base%@*}" --build-arg "BASE_DIGEST=$([[ $base != *@* ]] || echo "${base#*@}")")
fi
for name in BUILDCACHE MIRROR; do
    [[ -z ${!name:-} ]] || arguments+=(--build-arg "$name=${!name}")
done

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
    (cd "$context" && apptainer --quiet build --force --fakeroot --mksquashfs-args "-comp zstd -Xcompression-level 9" "${arguments[@]}" "$output.part" apptainer.def)
    repeatable_sif "$output.part"
    mv "$output.part" "$output"
}

repeatable_sif() { # SIF: writes it again without the time of the build, which Apptainer puts into labels, file system and header
    local dir system
    dir=$(mktemp -d "$work/sif.XXXXXX")
    # shellcheck disable=SC2064 # expand the name now
    trap "rm -rf '$dir'" RETURN
    system=$(apptainer sif list "$1" | awk -F'|' '/FS \(Squashfs/ { gsub(/ /, "", $1); print $1 }')
    apptainer sif dump "$system" "$1" >"$dir/old"
    unsquashfs -quiet -no-progress -no-xattrs -dest "$dir/root" "$dir/old" >/dev/null
    sed -i -E "s/(build-date\": *\")[^\"]*/\1$(date --utc --date "@$SOURCE_DATE_EPOCH" +%FT%TZ)/" "$dir/root/.singularity.d/labels.json"
    # It takes the times from SOURCE_DATE_EPOCH, if they are later.
    find "$dir/root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    mksquashfs "$dir/root" "$dir/new" -quiet -no-progress -noappend -all-root -no-xattrs -comp zstd -Xcompression-level 9 >/dev/null
    rm "$1"
    apptainer sif new "$1" >/dev/null
    apptainer sif add --datatype 4 --parttype 2 --partfs 1 --partarch "$([[ $(uname -m) == aarch64 ]] && echo 4 || echo 2)" "$1" "$dir/new"
    # Identifier and times of the header, at 48, and the times of each descriptor, from the table at 4096 on.
    .venv/bin/python - "$1" "$SOURCE_DATE_EPOCH" <<'PY'
import struct, sys

with open(sys.argv[1], "r+b") as sif:
    times = struct.pack("<qq", int(sys.argv[2]), int(sys.argv[2]))
    sif.seek(48)
    sif.write(bytes(16) + times)
    sif.seek(80)
    _, total, start = struct.unpack("<qqq", sif.read(24))
    for place in range(start, start + total * 585, 585):
        sif.seek(place + 4)
        if sif.read(1) == b"\1":
            sif.seek(place + 41)
            sif.write(times + bytes(16))
            name = place + 73
            sif.seek(name)
            sif.write(b"busbar".ljust(128, b"\0"))
PY
}

build_oci() {
    local builder=${BUILDER:-} image=localhost/busbar-$stack:$delivery
    if [[ -z $builder ]]; then
        if docker info >/dev/null 2>&1; then builder=docker; else builder=buildah; fi # buildah needs no daemon
    fi
    command -v "$builder" >/dev/null || die "no $builder found; install docker, podman or buildah"
    rm -rf "$output" "$work/layout"
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
    podman "${store[@]}" save --quiet --format oci-dir --output "$work/layout" "$1" >/dev/null
    pack_layout "$1"
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
    buildah "${store[@]}" push --quiet "$1" "oci:$work/layout:$1"
    pack_layout "$1"
}

pack_layout() { # IMAGE: writes the OCI layout as one archive, with the list that Docker before 25 reads
    .venv/bin/python - "$work/layout" "$1" <<'PY'
import json, pathlib, sys

layout = pathlib.Path(sys.argv[1])


def blob(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


(entry,) = json.loads((layout / "index.json").read_text())["manifests"]
manifest = json.loads((layout / blob(entry)).read_text())
listed = {"Config": blob(manifest["config"]), "RepoTags": [sys.argv[2]], "Layers": list(map(blob, manifest["layers"]))}
(layout / "manifest.json").write_text(json.dumps([listed]))
PY
    tar --create --file "$output" --directory "$work/layout" --sort=name --mtime "@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        blobs index.json manifest.json oci-layout
    rm -rf "$work/layout"
}

in_store() { # BUILDER: prepares the store, and empties it at exit
    # An overlay on an overlay, as in the container of a CI job, does not work.
    [[ $(stat --file-system --format %T "$work") != overlayfs ]] || store[5]=vfs
    # shellcheck disable=SC2064 # expand the store now
    trap "$(printf '%q ' "$1" "${store[@]}") rmi --all --force >/dev/null" EXIT
}

"build_$format"
printf '%s\n' "$output"
