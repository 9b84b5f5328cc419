#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# debian-mirror.sh WORK DIR PACKAGE[:SUITE]...: creates in DIR a Spack source mirror from the upstream archives of Debian source
# packages, each named by its checksum. WORK keeps the downloads.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$1 mirror=$2
shift 2
mkdir -p "$work"
for entry in "$@"; do
    ls "$work/${entry%:*}"_*.orig.tar.* >/dev/null 2>&1 || # download it if missing
        ci/spack/debian-source.sh "$work" "${entry%:*}" "${entry#*:}"
done
for file in "$work"/*.orig.tar.*; do
    [[ $file != *.asc ]] || continue
    sum=$(sha256sum "$file" | cut -d' ' -f1)
    install -D -m 644 "$file" "$mirror/_source-cache/archive/${sum:0:2}/$sum.tar.${file##*.}"
done
