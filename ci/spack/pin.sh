#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# pin.sh: updates every lock after a change of its sources, without a solve.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

spack_for site/_stacks/host python ci/spack/pin.py
mapfile -t names < <(environments)
ported=()
for name in "${names[@]}"; do
    [[ $(system_of "site/_stacks/$name") == debian12 ]] || ported+=("$name")
done
spack_for site/_stacks/host python ci/spack/port.py "${ported[@]}"
"$busbar" spack record --sources "${names[@]}"
