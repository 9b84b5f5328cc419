#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lock.sh [ENV...]: writes the locks (default: all); `python -m ci.spack.locks diff` prints the changes. It solves those for the system of
# images, and derives those for other systems from them.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

names=("$@")
((${#names[@]})) || mapfile -t names < <(environments)
derived=()
for name in "${names[@]}"; do
    start=$SECONDS
    if [[ $(system_of "site/_stacks/$name") != debian12 ]]; then
        derived+=("$name")
        continue
    fi
    spack_for "site/_stacks/$name" concretize --force --fresh --quiet
    "${locks[@]}" record "$name"
    printf '%s: solved (%ss)\n' "$name" $((SECONDS - start))
    for scope in site/_families/spack/systems/*; do
        other=${name%%/*}-${scope##*/}${name#"${name%%/*}"}
        [[ ! -e site/_stacks/$other/spack.yaml ]] || derived+=("$other")
    done
done
((${#derived[@]})) || exit 0
mapfile -t derived < <(printf '%s\n' "${derived[@]}" | sort -u)
spack_for site/_stacks/host python ci/spack/rehash.py "${derived[@]/#/site/_stacks/}"
"${locks[@]}" record "${derived[@]}"
