#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# test.sh OPTIONS-OF-PYTEST...: runs the test suite; with BUSBAR_LAB=1 or all the lab beside the other tests, as it mostly waits.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
pytest=.venv/bin/pytest
[[ -n ${BUSBAR_LAB:-} ]] || exec $pytest "$@"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
[[ $BUSBAR_LAB == all ]] && marks=lab || marks='lab and not long'
# Bash starts what runs in the background deaf to SIGINT, and the tests interrupt runs.
env --default-signal=INT,QUIT $pytest -m "$marks" >"$log" 2>&1 &
lab=$!
status=0
$pytest -m 'not lab' "$@" || status=$?
wait "$lab" || status=$?
cat "$log"
exit "$status"
