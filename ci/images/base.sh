#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# base.sh FILE: makes the root file system of a minimal Debian 12 from the archive that this machine's apt uses, as a tar file.
# It stands in for the pinned base where no container registry can be reached.
set -euo pipefail
file=$1
[[ ! -e $file ]] || exit 0
mkdir -p "$(dirname "$file")"
# shellcheck disable=SC2016 # apt-get's own words
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | grep ' bookworm' | sort -u >"$file.sources"
[[ -s $file.sources ]] || {
    echo "image: apt has no archive of Debian bookworm configured, name a base with BASE=" >&2
    exit 1
}
SOURCE_DATE_EPOCH=1 mmdebstrap --quiet --format=tar --variant=minbase --include=ca-certificates bookworm "$file.part" - <"$file.sources"
rm "$file.sources"
mv "$file.part" "$file"
