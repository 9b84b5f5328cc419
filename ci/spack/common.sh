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
# shellcheck disable=SC2034 # for the scripts that source this
locks=(.venv/bin/python -m ci.spack.locks) # check, record, diff

# Runs Spack as on the operating system and CPU of an environment, which it refuses on any other.
spack_for() { # ENV ARGUMENT...
    local system cpu
    system=$(system_of "$1")
    cpu=$(sed -nE 's|.*_families/spack/(neoverse_[a-z0-9]+)$|\1|p' "$1/spack.yaml")
    if [[ -n $system ]]; then
        "$SPACK_PYTHON" ci/spack/as_system.py "site/_families/spack/systems/$system" "$cpu" -e "$@"
    else
        spack -e "$@"
    fi
}

system_of() { # ENV: prints the operating system of its lock; nothing if it includes none
    sed -nE 's|.*_families/spack/systems/([^/ ]+)$|\1|p' "$1/spack.yaml"
}

environments() { # prints the names of all environments
    (cd site/_stacks && find . -name spack.yaml -printf '%P\n') | sed 's|/spack.yaml$||' | sort
}

# Sets env to the environment of SITE and LANE, which must have a lock; Busbar says why there is none.
locked_environment() { # SITE LANE [OPTION of busbar site spack]
    [[ -x $busbar ]] || die "no $busbar; run make setup"
    env=$("$busbar" site spack "$1" ${2:+--lane "$2"} ${3:+"$3"}) || exit 1
    [[ -e $env/spack.lock ]] || die "no $env/spack.lock; run make spack-lock ENVS=${env#site/_stacks/}"
}
