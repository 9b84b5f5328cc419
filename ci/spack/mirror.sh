#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# mirror.sh SITE [LANE [DIR]]: downloads the sources of a lock by checksum, for `make spack MIRROR=DIR` on another machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=/dev/null # made by setup.sh
. .spack/env.sh

die() {
    printf 'spack: %s\n' "$1" >&2
    exit 1
}

[[ -n ${1:-} ]] || die "no site given; for example: make spack-mirror SITE=h200x4"
env=site/$1
[[ -z ${2:-} || $2 == ucx-1.14 ]] || env=$env/$2
[[ -e $env/spack.lock ]] || die "no $env/spack.lock; SITE must be one of: $(cd site && echo [!_]*/)"
dir=${3:-build/spack-mirror}
mkdir -p "$dir"
spack -e "$env" mirror create --directory "$dir" --all ||
    die "some sources could not be downloaded (see above); the others are in $dir, and the next run continues"
