#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# debian-source.sh DIR PACKAGE [SUITE]: downloads the upstream archive of a Debian source package, from where this
# machine's apt gets its binary packages; SUITE is another release than the one installed.
set -euo pipefail
dir=$1 package=$2 suite=${3:-}
[[ $suite != "$package" ]] || suite=
here=$(sed -nE 's/^VERSION_CODENAME=//p' /etc/os-release)
suite=${suite:-$here}

apt=$dir/apt-$suite
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
sources=/etc/apt/sources.list.d/debian.sources
[[ -e $sources ]] || {
    printf 'spack: %s is missing: this needs Debian 12 or later as it installs itself\n' "$sources" >&2
    exit 1
}
# The release's own stanza, as sources, for the suite that was asked for.
awk -v RS= -v suite="$suite" '$0 !~ /-security/ {
    sub(/Types: [^\n]*/, "Types: deb-src"); sub(/Suites: [^\n]*/, "Suites: " suite); sub(/Components: [^\n]*/, "Components: main"); print }' \
    "$sources" >"$apt/source.sources"
options=(-o "Dir::Etc::sourcelist=$apt/source.sources" -o Dir::Etc::sourceparts=- -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache"
    -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root -qq)
[[ -n $(find "$apt/state/lists" -name '*Sources*' -print -quit) ]] || apt-get "${options[@]}" update
cd "$dir"
apt-get "${options[@]}" source --download-only "$package" ||
    # apt stops at a signature file that the archive lost; the checksum of the rest is Spack's to judge.
    ls "$package"_*.orig.tar.* >/dev/null
