#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# test.sh OPTIONS-OF-PYTEST...: runs the test suite; with BUSBAR_LAB=1 or all the lab beside the other tests, as it mostly waits.
# Then a few tests that failed beside others run once more, alone: they can be short of cores. What fails twice fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
pytest=.venv/bin/pytest
[[ -n ${BUSBAR_LAB:-} ]] || exec $pytest -m "not long" "$@"

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

part() { # NAME MARKS OPTIONS...
    $pytest -o cache_dir="$caches/$1" -m "$2" "${@:3}"
}

judged() { # NAME MARKS STATUS: remember a failure, unless the tests pass alone
    local now=$3
    if (($3 == 1)); then
        again "$1" "$2"
        now=$?
    fi
    ((status = status ? status : now))
}

[[ $BUSBAR_LAB == all ]] && day= || day=' and not long'
pure='not run and not lab' program="run and not lab$day" marks="lab$day"
# Two processes: the images, and the clusters. Bash starts what runs in the background deaf to SIGINT, and the tests interrupt runs.
env --default-signal=INT,QUIT $pytest -o cache_dir="$caches/lab" --numprocesses=2 --dist=loadgroup -m "$marks" >"$log" 2>&1 &
lab=$!
status=0 fast_status=0 run_status=0 lab_status=0
# CI counts the lines that the fast tests cover in the same run.
counted=(${BUSBAR_COVERAGE:+--cov --cov-report= --cov-fail-under=0})
part fast "$pure" "$@" "${counted[@]}" || fast_status=$?
part run "$program" "$@" || run_status=$?
wait "$lab" || lab_status=$?
cat "$log"
judged fast "$pure" "$fast_status"
judged run "$program" "$run_status"
judged lab "$marks" "$lab_status"
# Refuses a share below the floor.
((!${#counted[@]})) || .venv/bin/coverage report || status=1
exit "$status"
