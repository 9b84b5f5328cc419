#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lock.sh [ENV...]: writes the locks (default: all); `busbar spack diff` prints the changes. It solves those for the system of
# images, and ports each to the other systems that have the same environment.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

names=("$@")
((${#names[@]})) || mapfile -t names < <(environments)
ported=()
for name in "${names[@]}"; do
    start=$SECONDS
    if [[ $(system_of "site/_stacks/$name") != debian12 ]]; then
        ported+=("$name")
        continue
    fi
    spack_for "site/_stacks/$name" concretize --force --fresh --quiet
    "$busbar" spack record "$name"
    printf '%s: solved (%ss)\n' "$name" $((SECONDS - start))
    for scope in site/_families/spack/systems/*; do
        other=${name%%/*}-${scope##*/}${name#"${name%%/*}"}
        [[ ! -e site/_stacks/$other/spack.yaml ]] || ported+=("$other")
    done
done
((${#ported[@]})) || exit 0
mapfile -t ported < <(printf '%s\n' "${ported[@]}" | sort -u)
spack_for site/_stacks/host python ci/spack/port.py "${ported[@]}"
"$busbar" spack record "${ported[@]}"
