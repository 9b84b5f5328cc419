#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# base.sh FILE: writes the root file system of a minimal Debian 12, from the archive of this machine's apt, as a tar file.
# It replaces the pinned base if no container registry can be reached, and excludes the same files as the slim images.
set -euo pipefail
file=$1
[[ ! $file -nt $0 ]] || exit 0 # newer than this script, so it is current
command -v mmdebstrap >/dev/null || {
    echo "image: BASE=local needs mmdebstrap; install it (Debian: apt install mmdebstrap), or give another base with BASE=" >&2
    exit 1
}
mkdir -p "$(dirname "$file")"
# shellcheck disable=SC2016 # variables of apt-get
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | grep ' bookworm' | sort -u >"$file.sources"
[[ -s $file.sources ]] || {
    echo "image: apt has no Debian bookworm archive configured; give a base with BASE=" >&2
    exit 1
}
leave_out=()
for path in doc groff info lintian linda locale man; do leave_out+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
leave_out+=('--dpkgopt=path-include=/usr/share/doc/*/copyright')
# The hook of mmdebstrap merges /usr, so usr-is-merged is enough; usrmerge would install all of Perl.
# shellcheck disable=SC2016 # a variable of mmdebstrap
merged=(--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr
    --setup-hook='printf "Package: usrmerge\nPin: release *\nPin-Priority: -1\n" >"$1/etc/apt/preferences.d/merged"'
    --customize-hook='rm "$1/etc/apt/preferences.d/merged"')
SOURCE_DATE_EPOCH=1 mmdebstrap --quiet --format=tar --variant=minbase "${leave_out[@]}" "${merged[@]}" --include=ca-certificates bookworm "$file.part" - <"$file.sources" >&2
rm "$file.sources"
mv "$file.part" "$file"
