#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# bundle.sh SITE LANE OUTPUT: packs what a machine without a network needs to install Busbar and the stack of a site: the checkout at
# HEAD, all wheels of the locks, Spack, recipes, solver and sources of the lock (not with SPACK=no), bills of materials, and IMAGES.
# KEY is a private key of ssh to sign with. What could be downloaded stays in OUTPUT.d, so that the next run continues.
set -euo pipefail
cd "$(dirname "$0")/.."
site=${1:-local} lane=${2:-} output=$(realpath -m "${3:-build/bundle/busbar-${1:-local}.tar}")
dir=$output.d
mkdir -p "$dir/wheels" "$dir/sbom"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
umask 022

die() {
    printf 'bundle: %s\n' "$1" >&2
    exit 1
}

[[ -z $(git status --porcelain --untracked-files=no) ]] || die "there are changes that are not committed; commit or stash them"
git archive --prefix=busbar/ --output="$dir/busbar.tar" HEAD
locks=(locks/dev.txt locks/ucx-current.txt locks/spack.txt)
for lock in "${locks[@]}"; do
    .venv/bin/python -m pip download --disable-pip-version-check --quiet --no-deps --require-hashes --dest "$dir/wheels" -r "$lock" ||
        die "pip could not download the wheels of $lock; run it again to continue"
done
missing=()
if [[ ${SPACK:-yes} != no ]]; then
    ci/spack/setup.sh
    env=$(.venv/bin/busbar site spack "$site" --image ${lane:+--lane "$lane"})
    ci/spack/supply.sh "$env" "$dir/spack" 2>"$dir.log" || { # it says which sources are missing
        [[ -d $dir/spack/sources ]] || die "$(tail -n 1 "$dir.log")"
        mapfile -t missing < <(sed -nE 's/.*(Failed|failed|Error|error)[^:]*: *//p' "$dir.log" | sort -u)
    }
    rm -rf "$dir/spack/wheels"
    find "$dir/spack" -type l -delete # other names of the same archives
fi
ci/sbom.sh "$site" "$lane"
cp build/sbom/"$site${lane:+-$lane}".* "$dir/sbom/"
for image in ${IMAGES:-}; do
    mkdir -p "$dir/images"
    cp "$image" "$dir/images/"
    ci/sbom.sh "" "" "$image"
    cp "build/sbom/$(basename "${image%.sif}")".*.json "$dir/sbom/"
done
printf '%s: %s\n' commit "$(git rev-parse HEAD)" site "$site" lane "${lane:-default}" python "$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" >"$dir/ABOUT"
printf '%s\n' "${missing[@]}" | sed '/^$/d' >"$dir/MISSING"

# unbundle.sh makes the outer archive again, and compares.
pack() { # TAR DIR MEMBER...
    tar --create --file "$1" --directory "$2" --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r --no-recursion "${@:3}"
}
part=$(mktemp -d "$output.XXXXXX")
trap 'rm -rf "$part"' EXIT
mapfile -t files < <(cd "$dir" && find . -type f -printf '%P\n' | LC_ALL=C sort)
LC_ALL=C pack "$part/content.tar" "$dir" "${files[@]}"
(cd "$part" && sha256sum content.tar >content.sha256)
members=(content.tar content.sha256)
if [[ -n ${KEY:-} ]]; then
    ssh-keygen -q -Y sign -f "$KEY" -n busbar-bundle "$part/content.sha256"
    members+=(content.sha256.sig)
fi
LC_ALL=C pack "$part/bundle" "$part" "${members[@]}"
mv "$part/bundle" "$output"
cp ci/unbundle.sh "${output%.tar}.sh"
printf '%s (%s missing sources); verify it with %s\n' "$output" ${#missing[@]} "${output%.tar}.sh"
