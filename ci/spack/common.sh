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
    local system
    system=$(system_of "$1")
    if [[ -n $system ]]; then
        "$SPACK_PYTHON" ci/spack/as_system.py "site/_families/spack/systems/$system" "$(arm_of "$1")" -e "$@"
    else
        spack -e "$@"
    fi
}

require_pinned_spack() { # ends unless Spack is that of the committed locks, whose hashes another one writes differently
    # shellcheck source=/dev/null # assignments only
    . ci/spack/pins.env
    [[ $(spack --version) == *"$SPACK_COMMIT"* ]] || die "this is Spack $(spack --version), but the locks are of $SPACK_COMMIT; unset SPACK_ROOT and SPACK_VERSION"
}

system_of() { # ENV: prints the operating system of its manifest; nothing if it includes none
    sed -nE 's|.*_families/spack/systems/([^/ ]+)$|\1|p' "$1/spack.yaml"
}

arm_of() { # ENV: prints the target of its manifest if that is an Arm CPU
    sed -nE 's,.*_families/spack/(neoverse_[a-z0-9]+|aarch64)$,\1,p' "$1/spack.yaml"
}

environments() { # [--derived | --solved] [ENV...]: writes the manifests of these or all environments, and prints their names
    "${locks[@]}" manifests "$@"
}

derive() { # ENV...: writes locks for other systems from those for Debian 12
    (($#)) || return 0
    "${locks[@]}" manifests >/dev/null # it reads those for Debian 12
    spack_for site/_stacks/host python ci/spack/rehash.py "${@/#/site/_stacks/}" && "${locks[@]}" record "$@"
}

# Sets env to the environment of SITE and LANE, which must have a lock; Busbar says why there is none.
locked_environment() { # SITE LANE [OPTION of busbar site spack]
    local name system
    [[ -x $busbar ]] || die "no $busbar; run make setup"
    env=$("$busbar" site spack "$1" ${2:+--lane "$2"}) || exit 1
    name=${env#site/_stacks/}
    system=$([[ ! -e $env/spack.yaml ]] || system_of "$env")
    # A lock that was derived before the one for Debian 12 changed is derived again.
    if [[ -n $system && $env == site/_stacks/*-$system* && ! $env/spack.lock -nt ${env/-$system/}/spack.lock ]]; then
        derive "$name" >&2
    fi
    [[ -z ${3:-} ]] || "$busbar" site spack "$1" ${2:+--lane "$2"} "$3" >/dev/null || exit 1
    [[ -e $env/spack.lock ]] || die "no $env/spack.lock; run make spack-lock ENVS=$name"
}
