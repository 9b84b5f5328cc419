#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# test.sh OPTIONS-OF-PYTEST...: runs the test suite; with BUSBAR_LAB=1 or all the lab beside the other tests, as it mostly waits.
# Then a few tests that failed beside others run once more, alone: they can be short of cores. What fails twice fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
pytest=.venv/bin/pytest
[[ -n ${BUSBAR_LAB:-} ]] || exec $pytest "$@"

most_again=5
log=$(mktemp)
caches=$(mktemp -d)
trap 'rm -rf "$log" "$caches"' EXIT

again() { # CACHE MARKS
    local failed=$caches/$1/v/cache/lastfailed
    (($(wc -l <"$failed") <= most_again + 2)) || return 1 # JSON: a line for each test, and two for the braces
    echo "again, alone:"
    $pytest -o cache_dir="$caches/$1" -m "$2" --last-failed --last-failed-no-failures=none
}

[[ $BUSBAR_LAB == all ]] && marks=lab || marks='lab and not long'
# Bash starts what runs in the background deaf to SIGINT, and the tests interrupt runs.
env --default-signal=INT,QUIT $pytest -o cache_dir="$caches/lab" -m "$marks" >"$log" 2>&1 &
lab=$!
status=0 lab_status=0
$pytest -o cache_dir="$caches/others" -m 'not lab' "$@" || status=$?
wait "$lab" || lab_status=$?
cat "$log"
if ((status == 1)); then
    again others 'not lab'
    status=$?
fi
if ((lab_status == 1)); then
    again lab "$marks"
    lab_status=$?
fi
exit $((status ? status : lab_status))
