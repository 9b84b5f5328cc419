#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# built_once.sh ARGUMENTS-OF-C++...: the compiler that mpicxx calls in tests. It compiles the same sources with the same arguments once
# for all tests of a session, into $BUSBAR_TEST_FILES: else half of their time goes into the programs that every `busbar check` builds.
set -euo pipefail

words=() output=
while (($#)); do
    if [[ $1 == -o ]]; then
        output=$2
        shift
    else
        words+=("$1")
    fi
    shift
done
shopt -s nullglob
sources=(*.cpp *.hpp)
if [[ ! -d ${BUSBAR_TEST_FILES:-} || -z $output || ${#sources[@]} -eq 0 ]]; then
    exec c++ "${words[@]}" ${output:+-o "$output"}
fi

key=$({ printf '%s\0' "${words[@]}" && cat "${sources[@]}"; } | sha256sum)
kept=$BUSBAR_TEST_FILES/${key%% *}
exec 9>"$kept.lock"
flock 9
if [[ ! -e $kept ]]; then
    c++ "${words[@]}" -o "$kept.part"
    mv "$kept.part" "$kept"
fi
cp "$kept" "$output"
