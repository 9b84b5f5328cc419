#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# changes.sh COMMIT: prints what changed in each committed lock since a commit, by package, for a review.
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${1:?name a commit}
old=$(mktemp)
trap 'rm -f "$old"' EXIT
git diff --name-only --diff-filter=M "$base" -- 'site/_stacks/**/spack.lock' | while read -r lock; do
    git show "$base:$lock" >"$old"
    printf '== %s\n' "${lock%/spack.lock}"
    .venv/bin/python -m ci.spack.locks diff "$old" "$lock" || true # 1 with a difference
done
