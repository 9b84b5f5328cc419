#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# test.sh OPTIONS-OF-PYTEST...: runs the test suite; with BUSBAR_LAB=1 or all the lab beside the other tests, as it mostly waits.
# Then a few tests that failed beside the lab run once more, alone: what starts MPI can be short of cores. What fails twice fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
pytest=.venv/bin/pytest
[[ -n ${BUSBAR_LAB:-} ]] || exec $pytest "$@"

most_again=5
log=$(mktemp)
again=$(mktemp -d)
trap 'rm -rf "$log" "$again"' EXIT
[[ $BUSBAR_LAB == all ]] && marks=lab || marks='lab and not long'
# Bash starts what runs in the background deaf to SIGINT, and the tests interrupt runs.
env --default-signal=INT,QUIT $pytest -o cache_dir="$again/lab" -m "$marks" >"$log" 2>&1 &
lab=$!
status=0
$pytest -o cache_dir="$again/others" -m 'not lab' "$@" || status=$?
lab_status=0
wait "$lab" || lab_status=$?
cat "$log"
((lab_status == 0)) || exit "$lab_status"

failed=$again/others/v/cache/lastfailed
if ((status == 1)) && (($(wc -l <"$failed") <= most_again + 2)); then  # JSON, a line for each test
    echo "again, alone:"
    $pytest -o cache_dir="$again/others" -m 'not lab' --last-failed --last-failed-no-failures=none
    status=$?
fi
exit "$status"
