#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lock.sh [ENV...]: solves again and writes the locks (default: all); `busbar spack diff` prints the changes.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

names=("$@")
((${#names[@]})) || mapfile -t names < <(cd site/_stacks && find . -name spack.yaml -printf '%P\n' | sed 's|/spack.yaml$||' | sort)
for name in "${names[@]}"; do
    start=$SECONDS
    spack_for "site/_stacks/$name" concretize --force --fresh --quiet
    "$busbar" spack record "$name"
    printf '%s: solved (%ss)\n' "$name" $((SECONDS - start))
done
