#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# debian-source.sh DIR PACKAGE [SUITE]: downloads the upstream archive of a Debian source package from the archive of
# this machine's apt; SUITE is a release other than the installed one.
set -euo pipefail
dir=$1 package=$2 suite=${3:-}
[[ $suite != "$package" ]] || suite=
here=$(sed -nE 's/^VERSION_CODENAME=//p' /etc/os-release)
suite=${suite:-$here}

apt=$dir/apt-$suite
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
sources=/etc/apt/sources.list.d/debian.sources
[[ -e $sources ]] || {
    printf 'spack: %s is missing; this script needs the default apt sources of Debian 12 or later\n' "$sources" >&2
    exit 1
}
# The stanza of the release, changed to sources and to the requested suite.
awk -v RS= -v suite="$suite" '$0 !~ /-security/ {
    sub(/Types: [^\n]*/, "Types: deb-src"); sub(/Suites: [^\n]*/, "Suites: " suite); sub(/Components: [^\n]*/, "Components: main"); print }' \
    "$sources" >"$apt/source.sources"
options=(-o "Dir::Etc::sourcelist=$apt/source.sources" -o Dir::Etc::sourceparts=- -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache"
    -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root -qq)
[[ -n $(find "$apt/state/lists" -name '*Sources*' -print -quit) ]] || apt-get "${options[@]}" update
cd "$dir"
apt-get "${options[@]}" source --download-only "$package" ||
    # apt fails if the archive lacks a signature file; Spack verifies the checksum of the archive itself.
    ls "$package"_*.orig.tar.* >/dev/null
