#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lock.sh [ENV...]: writes the locks (default: all that are committed); `python -m ci.spack.locks diff` prints the changes. It solves those
# for the system of images, and derives those for other systems from them.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

require_pinned_spack
solved=$(environments --solved "$@") derived=$(environments --derived "$@")
for name in $solved; do
    start=$SECONDS
    spack_for "site/_stacks/$name" concretize --force --fresh --quiet
    "${locks[@]}" record "$name"
    printf '%s: solved (%ss)\n' "$name" $((SECONDS - start))
done
(($#)) || exit 0
# shellcheck disable=SC2086 # names
derive $derived
"${locks[@]}" record
