#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Creates .venv with the requirements of the lock, verified by hash, and busbar itself. Does nothing if the locks are unchanged.
# DEV=1 also installs the tools of `make test` and `make lint`; an environment that has them keeps them.
# LANE=ucx-current also installs the UCX of that lane, in addition to the default one (ucx-1.14, in the lock).
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
log=$venv/setup.log
lane=${LANE:-ucx-1.14}
python=${PYTHON:-python3}

die() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps "$@" >>"$log" 2>&1 ||
        die "pip could not install ($(grep -m1 -E '^ERROR' "$log" | cut -c1-200)); is a Python package index reachable? Set PIP_INDEX_URL or HTTPS_PROXY; the whole output is in $log"
}

[[ $lane == ucx-1.14 || $lane == ucx-current ]] || die "unknown LANE=$lane; known: ucx-1.14 ucx-current"
command -v "$python" >/dev/null || die "no $python found; install Python 3.11 or newer (Debian, Ubuntu: apt install python3 python3-venv)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" --version) is too old; install Python 3.11 or newer, or select one with PYTHON=python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null || # the message below replaces Python's import error
    die "$python cannot create virtual environments; install its venv module (Debian, Ubuntu: apt install python3-venv)"
cxx=${CXX:-g++}
command -v "${cxx%% *}" >/dev/null ||
    die "no C++ compiler ($cxx) found; install one (Debian, Ubuntu: apt install g++) or select one with CXX="

lock=requirements.lock
if [[ -n ${DEV:-} || -e $venv/bin/pytest ]]; then lock=locks/dev.txt; fi
want=$(cat "$lock" pyproject.toml | sha256sum | cut -d' ' -f1)
if [[ ! -e $venv/lock.sha256 || $(<"$venv/lock.sha256") != "$want" ]]; then
    printf 'setup: installing the locked requirements into %s (about a minute)\n' "$venv" >&2
    "$python" -m venv --clear "$venv" || die "$python -m venv failed; install its venv module (Debian, Ubuntu: apt install python3-venv)"
    pip_install --require-hashes -r "$lock"
    # Install this directory, with the locked setuptools as its build back end.
    pip_install --no-build-isolation --editable .
    printf '%s\n' "$want" >"$venv/lock.sha256"
    installed=yes
fi

if [[ $lane != ucx-1.14 ]]; then
    want=$(sha256sum <"locks/$lane.txt" | cut -d' ' -f1)
    if [[ ! -e $venv/lanes/$lane/lock.sha256 || $(<"$venv/lanes/$lane/lock.sha256") != "$want" ]]; then
        rm -rf "$venv/lanes/$lane"
        pip_install --require-hashes --target "$venv/lanes/$lane" -r "locks/$lane.txt"
        printf '%s\n' "$want" >"$venv/lanes/$lane/lock.sha256"
        installed=yes
    fi
fi
[[ -z ${installed:-} ]] || printf 'setup: done; next: . .venv/bin/activate\n' >&2
