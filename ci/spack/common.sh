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

busbar=.venv/bin/busbar

# Runs Spack as on a host with the CPU of an environment.
spack_for() { # ENV ARGUMENT...
    local cpu
    cpu=$(sed -nE 's|.*_families/spack/(neoverse_[a-z0-9]+)$|\1|p' "$1/spack.yaml")
    if [[ -n $cpu ]]; then
        "$SPACK_PYTHON" ci/spack/as_host.py "$cpu" -e "$@"
    else
        spack -e "$@"
    fi
}

# Sets env to the environment of SITE and LANE, which must have a lock; Busbar says why there is none.
locked_environment() { # SITE LANE
    [[ -x $busbar ]] || die "no $busbar; run make setup"
    env=$("$busbar" spack path "$1" ${2:+--lane "$2"}) || exit 1
    [[ -e $env/spack.lock ]] || die "no $env/spack.lock; run make spack-lock ENVS=${env#site/_stacks/}"
}
