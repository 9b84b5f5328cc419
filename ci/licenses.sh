#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# licenses.sh: writes locks/licenses.list, from which `make docs` writes docs/reference/licenses.md: the licence of each package of the
# locks, as the metadata of its wheel or its recipe of Spack states it.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/spack/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for lock in ucx-current cuda; do # the others are in .venv
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-compile --require-hashes --target "$work/$lock" -r "locks/$lock.txt"
done
# The environments for other systems have the same packages.
mapfile -t solved < <(environments --solved)
{
    .venv/bin/python ci/licenses.py "$work"/*
    spack_for site/_stacks/host python containers/licenses.py "${solved[@]/#/site/_stacks/}" | sed 's/^/spack /'
} | LC_ALL=C sort -u >"$work/licenses"
mv "$work/licenses" locks/licenses.list
