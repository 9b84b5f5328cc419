#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# push.sh SITE LANE URL: pushes the installed packages of a lock to a binary cache, signed with your key, and updates its index.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=/dev/null # made by setup.sh
. .spack/env.sh

die() {
    printf 'spack: %s\n' "$1" >&2
    exit 1
}

[[ -n ${1:-} && -n ${3:-} ]] || die "no site or cache given; for example: make spack-push SITE=h200x4 BUILDCACHE=file:///shared/cache"
env=site/$1
[[ -z ${2:-} || $2 == ucx-1.14 ]] || env=$env/$2
[[ -e $env/spack.lock ]] || die "no $env/spack.lock; SITE must be one of: $(cd site && echo [!_]*/)"
[[ -n $(spack -e "$env" gpg list --signing) ]] ||
    die "no signing key; run spack gpg create NAME MAIL, or spack gpg trust FILE for the key of your centre"
spack -e "$env" buildcache push --signed --update-index --without-build-dependencies "$3"
spack -e "$env" gpg publish --mirror-url "$3" --update-index
