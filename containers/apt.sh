#!/bin/sh
# SPDX-License-Identifier: MIT
# apt.sh PACKAGES...: installs Debian packages in the build stage, and prints their versions. Debian's base images name the snapshot
# of the archive that they were made from in a comment of their sources. Packages come from it, so that the pinned base always gets
# the same versions; from the configured mirror if the base names none or it cannot be reached. apt verifies signatures either way.
set -eu
sources=${APT_SOURCES:-/etc/apt/sources.list.d/debian.sources}
if grep -qs '^# *http.*/archive/.*/[0-9TZ]*$' "$sources"; then
    cp "$sources" "$sources.mirror"
    # The comment precedes the line that it replaces.
    awk '/^# *http.*\/archive\// { snapshot = $NF; next }
        /^URIs:/ && snapshot { print "URIs: " snapshot; snapshot = ""; next }
        { print }' "$sources.mirror" >"$sources"
    if ! apt-get update -qq -o Acquire::Check-Valid-Until=false -o Acquire::Retries=2 -o APT::Update::Error-Mode=any; then
        echo "apt: the snapshot of the base cannot be reached; packages come from the mirror" >&2
        mv "$sources.mirror" "$sources"
    fi
    rm -f "$sources.mirror"
fi
apt-get update -qq -o Acquire::Check-Valid-Until=false
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
dpkg-query -W "$@"
