#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sbom.sh [SITE [LANE [IMAGE]]]: writes the bill of materials of a site, from its lock of Spack and the locks of wheels that it
# uses, or of an image (a SIF or a sandbox), from what is in it.
set -euo pipefail
cd "$(dirname "$0")/.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
site=${1:-local} lane=${2:-} image=${3:-}

if [[ -n $image ]]; then
    exec .venv/bin/python -m ci.sbom "build/sbom/$(basename "${image%.sif}")" "$image"
fi
sources=(requirements.lock)
[[ -z $lane || ! -e locks/$lane.txt ]] || sources+=("locks/$lane.txt")
if environment=$(.venv/bin/busbar site spack "$site" --image ${lane:+--lane "$lane"}); then
    sources+=("$environment/spack.lock")
fi
exec .venv/bin/python -m ci.sbom "build/sbom/$site${lane:+-$lane}" "${sources[@]}"
