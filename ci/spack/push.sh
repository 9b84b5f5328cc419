#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# push.sh SITE LANE URL: pushes the installed packages of a lock to a binary cache, signed with your key, and updates its index. A
# registry (oci://HOST/NAME, or oci+http:// without TLS) has no signatures; BASE=IMAGE makes each package there an image that can be run.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"

[[ -n ${1:-} && -n ${3:-} ]] || die "no site or cache given; for example: make spack-push SITE=h200x4 BUILDCACHE=file:///shared/cache"
locked_environment "$1" "${2:-}"
if [[ $3 == oci* ]]; then
    spack -e "$env" buildcache push --unsigned --update-index --without-build-dependencies ${BASE:+--base-image "$BASE"} "$3"
    exit
fi
[[ -n $(spack -e "$env" gpg list --signing) ]] ||
    die "no signing key; run spack gpg create NAME MAIL, or spack gpg trust FILE for the key of your centre"
spack -e "$env" buildcache push --signed --update-index --without-build-dependencies "$3"
spack -e "$env" gpg publish --mirror-url "$3" --update-index
