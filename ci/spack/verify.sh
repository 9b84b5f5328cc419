#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# verify.sh [ENV...]: solves a copy of each environment again, compares it with its lock, which is derived first if it is
# for another system than Debian 12, and fake-installs the lock, which
# proves that every recipe loads and the graph is complete. Without ENV: every lock, and an audit and a style check of the
# recipes. A solve uses one core, so there are as many at a time as cores.
set -euo pipefail
# shellcheck source=ci/spack/common.sh
. "$(dirname "$0")/common.sh"
failed=0

names=$(environments "$@")
# shellcheck disable=SC2046 # names
derive $(environments --derived "$@")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# The hash of a recipe depends on its text and on the program, so copy all files that a solve reads.
tar --exclude=.spack-env -cf - packages site reframe_checks/src | tar -xf - -C "$copy"

# Exclude the configuration of this machine; use a separate install tree.
export BUSBAR_SPACK_SCOPE=$copy/scope
mkdir "$BUSBAR_SPACK_SCOPE"
printf 'bootstrap:\n  sources:: []\n  trusted:: {}\n' >"$BUSBAR_SPACK_SCOPE/bootstrap.yaml"
printf 'config:\n  install_tree:\n    root: %s/opt\n' "$copy" >"$BUSBAR_SPACK_SCOPE/config.yaml"
printf 'modules:\n  default:\n    roots: {lmod: %s/lmod, tcl: %s/tcl}\n' "$copy" "$copy" >"$BUSBAR_SPACK_SCOPE/modules.yaml"

fake() { # ENV: fake-installs its lock
    spack_for "$1" install --fake --only-concrete && return
    # Some recipes query the virtual environment that they depend on, so replace the fake one by a real one.
    find "$copy/opt" -maxdepth 2 -type d -name 'python-venv-*' -exec "$SPACK_PYTHON" -m venv --without-pip {} \;
    spack_for "$1" install --fake --only-concrete
}

verify() { # NAME: prints one result
    local solved start=$SECONDS env=$copy/site/_stacks/$1
    local log=$env/verify.log
    if spack_for "$env" concretize --force --fresh --quiet >"$log" 2>&1 &&
        "${locks[@]}" diff "site/_stacks/$1/spack.lock" "$env/spack.lock" >"$log" && solved=$((SECONDS - start)) &&
        fake "$env" >"$log" 2>&1; then
        printf '%s: same (%ss), graph installs (%ss)\n' "$1" $solved $((SECONDS - start - solved))
    else
        printf '%s: FAILED (%ss)\n%s\n' "$1" $((SECONDS - start)) "$(sed 's/^/  /' "$log")"
        return 1
    fi
}

if (($# == 0)); then
    recipes=(packages/spack_repo/busbar/packages/*/)
    mapfile -t recipes < <(basename -a "${recipes[@]}" | tr _ -)
    # The page of this release states a sha512, which Spack verifies; its audit reports any sum other than a sha256.
    known=$'PKG-PROPERTIES: 1 issue found\n1. Package \'aws-ofi-nccl\' does not use sha256 checksum\n    aws-ofi-nccl@1.21.1 uses sha512'
    report=$(spack_for site/_stacks/host audit packages "${recipes[@]}") || {
        [[ $(grep -v ': passed$' <<<"$report") == "$known" ]] || failed=1
    }
    printf '%s\n' "$report"
    "$SPACK_PYTHON" -m pip install --disable-pip-version-check --quiet --require-hashes -r locks/spack-style.txt
    tools=import,isort,black # of Spack 1.1; 1.2 has ruff instead, with the rules of spack-packages, which are not here
    [[ $(spack --version) == 1.1.* ]] || tools=import,ruff-format
    PATH=$PATH:$PWD/.venv/bin spack_for site/_stacks/host style --tool $tools packages/spack_repo/busbar/packages/*/package.py || failed=1
fi
running=0
for name in $names; do
    if ((running == $(nproc))); then
        wait -n || failed=1
        ((running -= 1))
    fi
    verify "$name" &
    ((running += 1))
done
for ((; running; running--)); do
    wait -n || failed=1
done
exit $failed
