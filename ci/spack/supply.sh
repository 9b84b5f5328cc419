#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# supply.sh ENV DIR: writes to DIR all that Spack needs to build an image of environment ENV without a network: Spack and the
# recipes at their pinned commits (git), its solver (wheels) and the sources of the lock (sources). `make image SUPPLY=DIR` uses
# it. Staff can add a signed cache (buildcache), the public keys of caches (keys), and apt sources of the GPU vendor (apt).
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=/dev/null # assignments only
. ci/spack/pins.env
env=${1%/} dir=${2:-}

[[ -e $env/spack.lock && -n $dir ]] || die "no directory given, or no lock; for example: make spack-supply SITE=h200x4 DIR=/shared/supply"
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

bare() { # CHECKOUT URL COMMIT: writes one commit as a bare repository, under the path of its URL
    local repository=$dir/git/${2#https://github.com/} from=$1
    [[ $(git -C "$from" rev-parse HEAD 2>/dev/null) == "$3" ]] || from=$2 # a Spack of the machine may not be a clone
    rm -rf "$repository"
    git init --quiet --bare "$repository"
    git -C "$repository" fetch --quiet --depth 1 "$from" "$3:refs/heads/pinned"
    git -C "$repository" symbolic-ref HEAD refs/heads/pinned
}
repos=site/_families/spack/common/repos.yaml
field() { # NAME: prints a value of the builtin recipes
    sed -nE "s/^ *$1: ([^ ]+).*/\\1/p" "$repos"
}
destination=$(field destination)
bare "$SPACK_ROOT" "$SPACK_URL" "$SPACK_COMMIT"
bare "${destination/\$user_cache_path/$SPACK_USER_CACHE_PATH}" "$(field git)" "$(field commit)"
mapfile -t wrapper < <(grep -oE 'https:[^"]+|[0-9a-f]{40}' packages/spack_repo/busbar/packages/compiler_wrapper/package.py)
bare . "${wrapper[@]}"

# For the Python version of the base image and the CPU of the environment, not those of this machine.
cpu=x86_64
[[ -z $(arm_of "$env") ]] || cpu=aarch64
"$SPACK_PYTHON" -m pip download --disable-pip-version-check --quiet --no-deps --require-hashes --only-binary :all: \
    --python-version 3.11 --platform "manylinux2014_$cpu" --platform "manylinux_2_28_$cpu" --dest "$dir/wheels" -r locks/spack.txt ||
    die "pip could not download Spack's solver; is a Python package index reachable?"

if [[ -e $env/debian-sources.txt ]]; then
    mapfile -t packages <"$env/debian-sources.txt"
    ci/spack/debian-mirror.sh "$PWD/.spack/deb" "$dir/sources" "${packages[@]}"
else
    spack_for "$env" mirror create --directory "$dir/sources" --all ||
        die "some sources could not be downloaded (see above); the others are in $dir/sources, and the next run continues"
fi
