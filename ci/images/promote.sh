#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# promote.sh IMAGE REPORT REGISTRY: pushes a SIF to oras://REGISTRY, if REPORT is the directory of a `busbar check` of this image, by its
# digest, that passed.
set -euo pipefail
image=${1:?name an image} report=${2:?name the directory of a report} registry=${3:?name a registry}
python3 - "$report/results.json" "$(sha256sum <"$image" | cut -d' ' -f1)" <<'PY'
import json, sys

results = json.load(open(sys.argv[1]))
if results["verdict"] != "pass":
    sys.exit(f"promote: {sys.argv[1]}: the verdict is {results['verdict']}, not pass")
if {each.get("image_digest") for each in results["provenance"].values()} != {sys.argv[2]}:
    sys.exit(f"promote: {sys.argv[1]}: is of another image than sha256 {sys.argv[2]}")
PY
apptainer push "$image" "oras://$registry/$(basename "${image%.sif}"):$(git rev-parse --short HEAD)"
