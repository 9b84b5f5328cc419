#!/bin/bash
# SPDX-License-Identifier: MIT
# kept.sh COMPILER OPTIONS... SOURCE -o PROGRAM LIBRARIES...: compiles, or takes what the very same compile has left before. The same
# are: the text behind the preprocessor with the macros of all its headers, the compiler's version, its options, and what the MPI's
# wrapper adds to them. Programs are kept in $BUSBAR_CACHE (~/.cache/busbar; empty: nowhere) until not asked for in 90 days.
set -u
caches=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
kept=${BUSBAR_CACHE-${caches:+$caches/busbar}}
[[ $kept ]] && mkdir -p "$kept" 2>/dev/null && [[ -w $kept ]] || exec "$@" # without a place for it it is only compiled
without_output=()
for ((at = 1; at <= $#; at++)); do
    if [[ ${!at} == -o ]]; then
        ((++at))
        program=${!at}
    else
        without_output+=("${!at}")
    fi
done
text=$("${without_output[@]}" -E -dD 2>/dev/null) || exec "$@" # whose errors are the ones to show
key=$({
    printf '%s\n' "$@" "$text"
    "$1" --version
    "$1" -show
} 2>/dev/null | sha256sum) # not every compiler knows -show; what it says instead is no part of the program
key=$kept/${key%% *}.program
if [[ -s $key ]] && cp "$key" "$program" 2>/dev/null; then # what cannot be copied, or is empty after a crash, is compiled
    touch "$key"
    echo "taken from $key"
    exit
fi
"$@" || exit
# Of a directory that may hold other things too.
find "$kept" -maxdepth 1 -type f -name '*.program*' -mtime +90 -delete
new=$key.$HOSTNAME.$$ # nodes may share a home
if ! { cp "$program" "$new" && mv "$new" "$key"; }; then
    rm -f "$new" # it is built all the same
fi
