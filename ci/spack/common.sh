# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the scripts beside it: enters the repository, puts Spack on PATH, and defines what they share.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=/dev/null # made by setup.sh
. .spack/env.sh

die() {
    printf 'spack: %s\n' "$1" >&2
    exit 1
}

# Sets env to the environment of SITE and LANE, which must have a lock.
locked_environment() { # SITE LANE
    env=site/$1
    [[ -z $2 || $2 == ucx-1.14 ]] || env=$env/$2
    [[ -e $env/spack.lock ]] || die "no $env/spack.lock; SITE must be one of: $(cd site && echo [!_]*/)"
}
