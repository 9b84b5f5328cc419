#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lock.sh [ENV...]: solves again and writes the locks (default: all); `busbar spack diff` prints the changes.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

names=("$@")
((${#names[@]})) || mapfile -t names < <(find site -name spack.yaml -printf '%h\n' | sed 's|^site/||' | sort)
for name in "${names[@]}"; do
    start=$SECONDS
    spack -e "site/$name" concretize --force --fresh --quiet
    printf '%s: solved (%ss)\n' "$name" $((SECONDS - start))
done
