#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# test.sh OPTIONS-OF-PYTEST...: runs the test suite; with BUSBAR_LAB=1 or all the lab beside the other tests, in two processes.
# Then a few tests that failed beside others run once more, alone: they can be short of cores. What fails twice fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
pytest=.venv/bin/pytest
[[ -n ${BUSBAR_LAB:-} ]] || exec $pytest -m "not long" "$@"

most_again=5
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT

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
lab() { # NAME KEYWORDS: a part of the lab in the background
    # Bash starts it deaf to SIGINT, and the tests interrupt runs.
    env --default-signal=INT,QUIT $pytest -o cache_dir="$caches/$1" -m "$marks" -k "$2" >"$caches/$1.log" 2>&1 &
}
# Images need the cores, and clusters wait. test_lab looks at all mounts and links, which images change.
images='image or containers or test_lab'
lab images "$images"
first=$!
lab clusters "not ($images)"
second=$!
status=0 fast_status=0 run_status=0 first_status=0 second_status=0
# CI counts the lines that the fast tests cover in the same run.
counted=(${BUSBAR_COVERAGE:+--cov --cov-report= --cov-fail-under=0})
part fast "$pure" "$@" "${counted[@]}" || fast_status=$?
part run "$program" "$@" || run_status=$?
wait "$first" || first_status=$?
wait "$second" || second_status=$?
cat "$caches"/*.log
judged fast "$pure" "$fast_status"
judged run "$program" "$run_status"
judged images "$marks" "$first_status"
judged clusters "$marks" "$second_status"
# Refuses a share below the floor.
((!${#counted[@]})) || .venv/bin/coverage report || status=1
exit "$status"
