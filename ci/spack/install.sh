#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# install.sh [SITE [LANE]] [OPTION...]: installs a site from its lock; without SITE the environment ENVIRONMENT from its lock, or
# the host stack, concretized on this machine.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

[[ -n ${1:-} || -z ${2:-} ]] || die "LANE=$2 needs SITE; for example: make spack SITE=local LANE=$2"
for url in "${BUILDCACHE:-}" "${MIRROR:-}"; do
    [[ $url != file://* || -d ${url#file://} ]] || die "$url does not exist; Spack would build or download everything without a word"
done

env=${ENVIRONMENT:-.}
scope=()
if [[ -n ${1:-} ]]; then
    locked_environment "$1" "${2:-}" --installable
    # Sites share environments, but not the variables of their fabric.
    modules=$PWD/.spack/modules/$1${2:+-$2}
    mkdir -p "$modules"
    "$busbar" site env "$1" --modules ${2:+--lane "$2"} >"$modules/modules.yaml"
    scope=(-C "$modules")
fi
shift $(($# > 2 ? 2 : $#))

[[ $env != . || -e spack.lock ]] || spack -e . concretize
# Without --only-concrete Spack may solve again; the lock must be installed unchanged.
spack "${scope[@]}" -e "$env" install --only-concrete "$@"
