#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# base.sh FILE: makes the root file system of a minimal Debian 12 from the archive that this machine's apt uses, as a tar file.
# It stands in for the pinned base where no container registry can be reached, and leaves out what the slim images leave out.
set -euo pipefail
file=$1
[[ ! $file -nt $0 ]] || exit 0 # made by this very script
mkdir -p "$(dirname "$file")"
# shellcheck disable=SC2016 # apt-get's own words
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | grep ' bookworm' | sort -u >"$file.sources"
[[ -s $file.sources ]] || {
    echo "image: apt has no archive of Debian bookworm configured, name a base with BASE=" >&2
    exit 1
}
leave_out=()
for path in doc groff info lintian linda locale man; do leave_out+=("--dpkgopt=path-exclude=/usr/share/$path/*"); done
leave_out+=('--dpkgopt=path-include=/usr/share/doc/*/copyright')
# mmdebstrap merges /usr itself, by its hook, so that usr-is-merged is enough: usrmerge would bring the whole of Perl.
# shellcheck disable=SC2016 # mmdebstrap's own variable
merged=(--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr
    --setup-hook='printf "Package: usrmerge\nPin: release *\nPin-Priority: -1\n" >"$1/etc/apt/preferences.d/merged"'
    --customize-hook='rm "$1/etc/apt/preferences.d/merged"')
SOURCE_DATE_EPOCH=1 mmdebstrap --quiet --format=tar --variant=minbase "${leave_out[@]}" "${merged[@]}" --include=ca-certificates bookworm "$file.part" - <"$file.sources" >&2
rm "$file.sources"
mv "$file.part" "$file"
