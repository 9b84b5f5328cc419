#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# pin.sh: updates the hashes in every lock after a change of recipes or of the source of gpu_aware, without a solve.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

require_pinned_spack
mapfile -t solved < <(environments --solved)
spack_for site/_stacks/host python ci/spack/rehash.py "${solved[@]/#/site/_stacks/}" ci/images/small
"${locks[@]}" record --sources "${solved[@]}"
