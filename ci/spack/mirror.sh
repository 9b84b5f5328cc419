#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# mirror.sh SITE [LANE [DIR]]: downloads the sources of a lock by checksum, for `make spack MIRROR=DIR` on another machine.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

[[ -n ${1:-} ]] || die "no site given; for example: make spack-mirror SITE=h200x4"
locked_environment "$1" "${2:-}"
dir=${3:-build/spack-mirror}
mkdir -p "$dir"
spack_for "$env" mirror create --directory "$dir" --all ||
    die "some sources could not be downloaded (see above); the others are in $dir, and the next run continues"
