#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# concretize.sh SITE [LANE]: solves the environment of a site for this system, and checks that the lock keeps the required
# versions. The compiler and externals are those of the scope that spack-externals writes. On a system that has no environment
# it writes one, so that committed locks stay as they are.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

[[ -n ${1:-} ]] || die "no site given; for example: make spack-concretize SITE=h200x4"
[[ -x $busbar ]] || die "no $busbar; run make setup"
[[ -e $BUSBAR_SPACK_SCOPE/packages.yaml ]] ||
    die "no $BUSBAR_SPACK_SCOPE/packages.yaml; run make spack-externals, or write the compiler and externals of this machine there"
env=$("$busbar" site spack "$1" ${2:+--lane "$2"} --create) || exit 1
spack -e "$env" concretize --force --fresh --quiet
"${locks[@]}" record "${env#site/_stacks/}"
"${locks[@]}" check "${env#site/_stacks/}"
